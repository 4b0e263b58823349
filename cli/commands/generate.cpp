#include "fakequant/layers/model/generate.h"

#include <limits>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/evaluation.h"
#include "fakequant/cli/flags/flag_groups.h"
#include "fakequant/cli/python_script.h"
#include "fakequant/cli/system/temporary_folder.h"
#include "fakequant/cli/text/network_tokenizer.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/core/io/detail/json_text.h"

namespace fq::cli {
namespace {

using fq::detail::Tokenizer;
using fq::detail::TokenTable;

/// Encodes a text by the module fakequant.data of Python.
std::vector<std::int64_t> encode_pieces(const TokenTable& table, const std::string& text,
                                        const Flags& flags) {
  const TemporaryFolder folder;
  write_file(folder.file("tokenizer.json"), table.text());
  write_file(folder.file("text"), text);
  const ProgramLimits limits{.output_file = folder.file("ids"),
                             .error_file = folder.file("errors"),
                             .input_file = folder.file("text")};
  const auto words = module_words(flags.command(), python_with(flags.text("python"), {"tokenizers"}),
                                  "fakequant.data", {"encode", "--tokenizer", folder.file("tokenizer.json")});
  (void)run_python(flags, words, limits, flags.text("checkpoint"));
  return fq::detail::whole_values<std::int64_t>(
      fq::detail::parse_json<nlohmann::json>(read_file(limits.output_file)));
}

std::vector<std::int64_t> encode_prompt(const Tokenizer& tokenizer, const std::string& prompt,
                                        const Flags& flags) {
  FQ_CHECK(!prompt.empty(), "generate", "--prompt is empty: give a token or more to begin with");
  std::vector<std::int64_t> ids;
  try {
    ids = tokenizer.table() != nullptr ? encode_pieces(*tokenizer.table(), prompt, flags)
                                       : tokenizer.encode(prompt);
  } catch (const ArgumentError& error) {
    const std::string what = error.what(), text = "[tokens] the text";
    if (!what.starts_with(text)) throw;
    throw ArgumentError("[generate] --prompt" + what.substr(text.size()));
  }
  FQ_CHECK(!ids.empty(), "generate", "--prompt has no {}: give one or more to begin with",
           tokenizer.unit_name());
  return ids;
}

Tensor prompts_of(const std::vector<std::int64_t>& ids, std::int64_t count) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < count; ++i) all.insert(all.end(), ids.begin(), ids.end());
  return Tensor::from(all, {count, std::ssize(ids)});
}

}  // namespace

FlagSet generate_flags() {
  FlagSet set("generate", "Prints text that a network goes on with, one token after another.",
              "CHECKPOINT --prompt TEXT [flags]");
  set.group("Text")
      .argument("checkpoint", "FILE", "of a network that tells the next token, as the model gpt does")
      .value("prompt", "TEXT", "what the text begins with")
      .value("tokens", "TOKENS", "that follow", "200")
      .value("temperature", "NUMBER", "what logits are divided by; 0: always the likeliest token", "1")
      .value("top-k", "TOKENS", "the likeliest, which are drawn from; 0: all", "0")
      .value("seed", "NUMBER", "of the draws", "0")
      .value("count", "TEXTS", "of the same prompt, each with draws of its own", "1")
      .value("context", "TOKENS", "that the network sees at most (default: as it was trained)")
      .value("python", "FILE",
             "a Python 3 with the package tokenizers, for a network with a tokenizer.json (default: "
             "FAKEQUANT_PYTHON, or python3)")
      .toggle("no-cache", "compute every token anew: the same text, slower");
  add_general_flags(set);
  return set;
}

nlohmann::ordered_json generate_text(const Flags& flags, Output& output) {
  apply_general_flags(flags);
  constexpr std::int64_t most = std::int64_t{1} << 24;
  const std::string checkpoint = flags.required("checkpoint"),
                    prompt = flags.given("prompt") ? flags.text("prompt") : flags.required("prompt");
  Network network = load_network(checkpoint);
  const Tokenizer tokenizer = tokenizer_of(network, checkpoint, "generate");
  check_calibrated(network, "generate");
  const std::int64_t trained = network.input_shape()[1], count = flags.integer("count", 1, 1 << 16);
  const GenerateOptions options{
      .tokens = flags.integer("tokens", 0, most),
      .temperature = flags.number("temperature", 0, std::numeric_limits<float>::max()),
      .top_k = flags.integer("top-k", 0, most),
      .seed = static_cast<std::uint64_t>(flags.integer("seed", 0, std::numeric_limits<std::int64_t>::max())),
      .context = flags.given("context") ? flags.integer("context", 1, trained) : trained,
      .cache = !flags.on("no-cache")};
  const Tensor prompts = prompts_of(encode_prompt(tokenizer, prompt, flags), count);
  network.module().to(device_of(flags));
  const Stopwatch watch;
  const Tensor ids = fq::generate(network.module(), prompts, options);
  const double seconds = watch.seconds();
  auto texts = nlohmann::ordered_json::array();
  for (std::int64_t i = 0; i < count; ++i) {
    const std::string text =
        tokenizer.decode({ids.data<std::int64_t>() + i * ids.dim(1), std::size_t(ids.dim(1))});
    output.line(text);
    texts.push_back(text);
  }
  return {{"texts", texts},
          {"tokens", count * options.tokens},
          {"seconds", seconds},
          {"tokens_per_second", double(count * options.tokens) / seconds}};
}

}  // namespace fq::cli
