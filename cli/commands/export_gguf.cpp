#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/commands/export_formats.h"
#include "fakequant/cli/flags/output_kind.h"
#include "fakequant/cli/tables/class_labels.h"
#include "fakequant/cli/text/network_tokenizer.h"
#include "fakequant/core/log.h"
#include "fakequant/export/gguf/detail/vocabulary.h"
#include "fakequant/export/gguf/model.h"

namespace fq::cli {
namespace {

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
  const auto table = token_table(network);
  if (!table)
    options.vocabulary = tokens_of(network);
  else if (!fq::detail::take_tokens(*table, options))
    log(LogLevel::warning,
        "[export] the network's tokenizer is no byte-level BPE: the file has no tokenizer, give llama.cpp "
        "ids");
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
