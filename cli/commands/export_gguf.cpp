#include <filesystem>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/commands/export_formats.h"
#include "fakequant/cli/flags/output_kind.h"
#include "fakequant/export/gguf/model.h"

namespace fq::cli {
namespace {

GgufModel gguf_file(const Network& network, const ExportOptions& options) {
  return network.to_gguf(std::filesystem::path(options.checkpoint).stem().string(), options.f16);
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
