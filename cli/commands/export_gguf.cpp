#include <filesystem>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/class_names.h"
#include "fakequant/cli/commands/export_formats.h"
#include "fakequant/cli/flags/output_kind.h"
#include "fakequant/export/gguf/model.h"

namespace fq::cli {

std::vector<WrittenFile> gguf_files(const Flags& flags) {
  return {written_for(flags, "model.gguf", kind::gguf)};
}

nlohmann::ordered_json export_gguf(Network& network, const Flags& flags, Output& output) {
  const std::string path = file_for(flags, "model.gguf");
  GgufOptions options;
  options.name = std::filesystem::path(flags.text("checkpoint")).stem().string();
  options.vocabulary = class_names(network);
  options.f16 = flags.choice("float-type", {"f32", "f16"}) == "f16";
  const GgufModel model = gguf_model(*network.module, network.input_shape(), options);
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
