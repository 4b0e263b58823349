#include <filesystem>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/export_formats.h"
#include "fakequant/export/safetensors/modelopt.h"

namespace fq::cli {

nlohmann::ordered_json export_safetensors(Network& network, const Flags& flags, Output& output) {
  const std::string path = file_for(flags, "model.safetensors");
  save_modelopt(path, *network.module, FAKEQUANT_VERSION);
  const auto config = (std::filesystem::path(path).parent_path() / "hf_quant_config.json").string();
  const std::string algorithm = modelopt_config(*network.module)["quantization"]["quant_algo"];
  const auto count = SafetensorsFile(path).entries().size();
  output.line(fmt::format("{} tensors, {}, in {} and {}", count, algorithm, path, config));
  return {{"files", {path, config}}, {"quant_algo", algorithm}, {"tensors", count}};
}

}  // namespace fq::cli
