#include "fakequant/layers/model/generate.h"

#include <limits>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/evaluation.h"
#include "fakequant/cli/flags/flag_groups.h"
#include "fakequant/cli/initial_weights.h"
#include "fakequant/cli/network_tokenizer.h"
#include "fakequant/cli/system/programs.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/core/io/detail/json_text.h"

namespace fq::cli {
namespace {

using fq::detail::Tokenizer;
using fq::detail::TokenTable;

constexpr std::int64_t kMostTokens = std::int64_t{1} << 24;

struct TextOptions {
  std::string checkpoint, python;
  std::optional<std::string> prompt;
  std::int64_t tokens = 200, top_k = 0, seed = 0, count = 1;
  std::optional<std::int64_t> context;
  double temperature = 1;
  bool no_cache = false;
  GeneralOptions general;
};

/// Encodes a text by the Python module fakequant.data.
std::vector<std::int64_t> encode_pieces(const TokenTable& table, const std::string& text,
                                        const TextOptions& options) {
  const TemporaryFolder folder;
  write_file(folder.file("tokenizer.json"), table.text());
  write_file(folder.file("text"), text);
  // The text goes through a file: arguments have a length limit and may be seen by other users.
  const ProgramLimits limits{.output_file = folder.file("ids"),
                             .error_file = folder.file("errors"),
                             .input_file = folder.file("text")};
  const auto words = module_words("generate", find_python(options.python, {"tokenizers"}), "fakequant.data",
                                  {"encode", "--tokenizer", folder.file("tokenizer.json")});
  (void)run_python("generate", words, limits, options.checkpoint);
  return fq::detail::whole_values<std::int64_t>(
      fq::detail::parse_json<nlohmann::json>(read_file(limits.output_file)));
}

// A network with a tokenizer.json needs the rules of the tokenizers package. Characters and words are split
// here.
std::vector<std::int64_t> encode_prompt(const Tokenizer& tokenizer, const TextOptions& options) {
  const std::string& prompt = *options.prompt;
  std::vector<std::int64_t> ids;
  try {
    ids = tokenizer.table() != nullptr ? encode_pieces(*tokenizer.table(), prompt, options)
                                       : tokenizer.encode(prompt);
  } catch (const ArgumentError& error) {
    // The library names its argument "the text". The message of the command names the flag.
    const std::string what = error.what(), text = "[tokens] the text";
    if (!what.starts_with(text)) throw;
    throw ArgumentError("[generate] --prompt" + what.substr(text.size()));
  }
  FQ_CHECK(!ids.empty(), "generate", "--prompt has no {}: use one or more to begin with",
           tokenizer.unit_name());
  return ids;
}

// Returns i64 [count, T]: the same prompt in every row. Rows draw their tokens independently.
Tensor repeat_prompt(const std::vector<std::int64_t>& ids, std::int64_t count) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < count; ++i) all.insert(all.end(), ids.begin(), ids.end());
  return Tensor::from(all, {count, std::ssize(ids)});
}

FlagSet generate_flags(TextOptions& options) {
  FlagSet set("generate", "Prints text that a network continues, one token after another.",
              "CHECKPOINT --prompt TEXT [flags]");
  set.group("Text")
      .argument(options.checkpoint, "checkpoint", "FILE",
                "a network that predicts the next token, for example gpt")
      .required()
      .value(options.prompt, "prompt", "TEXT", "the beginning of the text")
      .value(options.tokens, "tokens", "TOKENS", {0, kMostTokens}, "number of new tokens")
      .value(options.temperature, "temperature", "NUMBER", {0, std::numeric_limits<float>::max()},
             "divisor of the logits; 0: always the most likely token")
      .value(options.top_k, "top-k", "TOKENS", {0, kMostTokens},
             "number of most likely tokens to draw from; 0: all")
      .value(options.seed, "seed", "NUMBER", {0, std::numeric_limits<std::int64_t>::max()},
             "seed of the draws")
      .value(options.count, "count", "TEXTS", {1, 1 << 16}, "number of texts, each with its own draws")
      .value(options.context, "context", "TOKENS", {1, kMostTokens},
             "largest number of tokens that the network reads (default: as in training)")
      .value(options.python, "python", "FILE",
             "a Python 3 with the package tokenizers, for a network with a tokenizer.json (default: "
             "FAKEQUANT_PYTHON, or python3)")
      .toggle(options.no_cache, "no-cache", "compute every token again: the same text, slower");
  add_general_flags(set, options.general);
  return set;
}

GenerateOptions generate_options(const TextOptions& options, std::int64_t trained) {
  const std::int64_t context = options.context.value_or(trained);
  // Positions beyond the training length have no trained embedding.
  FQ_CHECK(context <= trained, "generate", "--context is '{}': use a whole number from 1 to {}", context,
           trained);
  return {.tokens = options.tokens,
          .temperature = options.temperature,
          .top_k = options.top_k,
          .seed = static_cast<std::uint64_t>(options.seed),
          .context = context,
          .cache = !options.no_cache};
}

void print_texts(const Tokenizer& tokenizer, const Tensor& ids, Output& output,
                 nlohmann::ordered_json& result) {
  result["texts"] = nlohmann::ordered_json::array();
  for (std::int64_t i = 0; i < ids.dim(0); ++i) {
    const std::string text =
        // `ids` is [count, T + tokens], prompt included.
        tokenizer.decode({ids.data<std::int64_t>() + i * ids.dim(1), std::size_t(ids.dim(1))});
    output.line(text);
    result["texts"].push_back(text);
  }
}

Plan plan_generate(const TextOptions& options, PlannedFiles&) {
  if (!options.prompt) check_given({}, "prompt", "generate");
  FQ_CHECK(!options.prompt->empty(), "generate", "--prompt is empty: use a token or more to begin with");
  const Network network = load_network(options.checkpoint);
  const Tokenizer tokenizer = make_tokenizer(network, options.checkpoint, "generate");
  check_calibrated(network, "generate");
  const GenerateOptions how = generate_options(options, network.input_shape()[1]);
  Plan plan;
  plan.add(fmt::format("generate {} tokens with {}", options.tokens, options.checkpoint),
           [&options, network, tokenizer, how](Output& output, nlohmann::ordered_json& result) {
             const Tensor prompts = repeat_prompt(encode_prompt(tokenizer, options), options.count);
             network.module().to(chosen_device(options.general, "generate"));
             const Stopwatch watch;
             const Tensor ids = fq::generate(network.module(), prompts, how);
             const double seconds = watch.seconds();
             print_texts(tokenizer, ids, output, result);
             const std::int64_t tokens = options.count * options.tokens;
             result["tokens"] = tokens;
             result["seconds"] = seconds;
             result["tokens_per_second"] = double(tokens) / seconds;
           });
  return plan;
}

}  // namespace

Command generate_command() {
  return {"generate", "print text that a network continues", typed(generate_flags, plan_generate)};
}

}  // namespace fq::cli
