#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/commands/export_formats.h"
#include "fakequant/cli/flags/output_kind.h"
#include "fakequant/cli/network_tokenizer.h"
#include "fakequant/cli/tables/class_table.h"
#include "fakequant/core/log.h"
#include "fakequant/export/gguf/detail/vocabulary.h"
#include "fakequant/export/gguf/model.h"

namespace fq::cli {
namespace {

/// Returns the tokens of the class names. Data sets of texts write an unprintable byte as "\x0a".
std::vector<std::string> token_texts(const Network& network) {
  auto names = network.identity().class_names;
  for (auto& name : names)
    if (name.size() == 4 && name.starts_with("\\x") &&
        std::isxdigit(static_cast<unsigned char>(name[2])) != 0 &&
        std::isxdigit(static_cast<unsigned char>(name[3])) != 0)
      name = std::string(1, static_cast<char>(std::stoi(name.substr(2), nullptr, 16)));
  return names;
}

GgufModel gguf_file(Network& network, const ExportOptions& given) {
  GgufOptions options;
  options.name = std::filesystem::path(given.checkpoint).stem().string();
  const auto table = token_table(network);
  if (!table) options.vocabulary = token_texts(network);
  // llama.cpp implements byte-level BPE. With another tokenizer it would split texts differently.
  else if (!fq::detail::take_tokens(*table, options))
    log(LogLevel::warning,
        "[export] the network's tokenizer is not byte-level BPE, so the file has no tokenizer. Use token ids "
        "in llama.cpp");
  options.f16 = given.f16;
  return gguf_model(network.module(), network.input_shape(), options);
}

}  // namespace

std::vector<WrittenFile> gguf_files(const ExportOptions& options) {
  return {written_file(options, "model.gguf", kind::gguf)};
}

ExportWriter convert_to_gguf(Network& network, const ExportOptions& options) {
  // The model is made in the plan, so that the step can only fail to write.
  return [path = output_file(options, "model.gguf"),
          model = gguf_file(network, options)](Output& output) -> nlohmann::ordered_json {
    save_gguf(path, model);
    std::int64_t blocks = 0, bytes = 0;
    for (const auto& tensor : model.tensors) {
      // Other tensors are floats.
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
  };
}

}  // namespace fq::cli
