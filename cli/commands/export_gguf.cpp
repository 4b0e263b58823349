#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/commands/export_formats.h"
#include "fakequant/cli/flags/output_kind.h"
#include "fakequant/cli/tables/class_labels.h"
#include "fakequant/cli/text/network_tokenizer.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/core/log.h"
#include "fakequant/export/gguf/model.h"
#include "fakequant/train/data/reader/tokenizer/byte_alphabet.h"
#include "fakequant/train/data/reader/tokenizer/tokenizer_file.h"
#include "fakequant/train/data/reader/tokenizer/words.h"

namespace fq::cli {
namespace {

/// llama.cpp's name of the words of a "pre_tokenizer".
std::string pattern_of(const nlohmann::json& step) {
  const std::string type = step.is_object() ? step.value("type", std::string()) : std::string();
  if (type == "Split")
    return std::string(fq::detail::word_pattern(step.at("pattern").at("Regex").get<std::string>()).name);
  if (type == "Sequence")
    for (const auto& part : step.at("pretokenizers"))
      if (std::string found = pattern_of(part); found != "gpt-2") return found;
  return "gpt-2";
}

/// Of a tokenizer.json of byte-level BPE; others are none of llama.cpp's "gpt2".
void take_pieces(const fq::detail::TokenizerFile& file, GgufOptions& options) {
  options.merges = file.byte_merges();
  if (options.merges.empty())
    return log(LogLevel::warning,
               "[export] the network's tokenizer is no byte-level BPE: the file has no tokenizer, give "
               "llama.cpp ids");
  const auto tokenizer = nlohmann::json::parse(file.text());
  options.pattern = pattern_of(tokenizer["pre_tokenizer"]);
  for (const auto& token : tokenizer.value("added_tokens", nlohmann::json::array()))
    if (token.value("special", false))
      options.control.push_back(fq::detail::whole_value<std::int32_t>(token.at("id")));
  for (const auto& token : file.tokens()) options.vocabulary.push_back(fq::detail::from_byte_alphabet(token));
}

/// Names of classes as data sets of texts write them: a byte that is not printed is "\x0a".
std::vector<std::string> tokens_of(const Network& network) {
  auto names = network.identity().class_names;
  for (auto& name : names)
    if (name.size() == 4 && name.starts_with("\\x") &&
        std::isxdigit(static_cast<unsigned char>(name[2])) != 0 &&
        std::isxdigit(static_cast<unsigned char>(name[3])) != 0)
      name = std::string(1, static_cast<char>(std::stoi(name.substr(2), nullptr, 16)));
  return names;
}

GgufModel model_of(Network& network, const Flags& flags) {
  GgufOptions options;
  options.name = std::filesystem::path(flags.text("checkpoint")).stem().string();
  if (const auto file = tokenizer_file_of(network))
    take_pieces(*file, options);
  else
    options.vocabulary = tokens_of(network);
  options.f16 = flags.choice("float-type", {"f32", "f16"}) == "f16";
  return gguf_model(network.module(), network.input_shape(), options);
}

}  // namespace

std::vector<WrittenFile> gguf_files(const Flags& flags) {
  return {written_for(flags, "model.gguf", kind::gguf)};
}

void check_gguf(Network& network, const Flags& flags) { (void)model_of(network, flags); }

nlohmann::ordered_json export_gguf(Network& network, const Flags& flags, Output& output) {
  const std::string path = file_for(flags, "model.gguf");
  const GgufModel model = model_of(network, flags);
  save_gguf(path, model);
  std::int64_t blocks = 0, bytes = 0;
  for (const auto& tensor : model.tensors) {
    blocks += tensor.type == GgufType::q4_0 || tensor.type == GgufType::q8_0 ? 1 : 0;
    bytes += tensor.data.nbytes();
  }
  const auto architecture = std::get<std::string>(*model.value("general.architecture"));
  output.line(fmt::format("{} tensors, {} of them blocks of codes, {} bytes, architecture {}, in {}",
                          model.tensors.size(), blocks, bytes, architecture, path));
  return {{"files", {path}},
          {"architecture", architecture},
          {"tensors", model.tensors.size()},
          {"quantized_tensors", blocks},
          {"bytes", bytes}};
}

}  // namespace fq::cli
