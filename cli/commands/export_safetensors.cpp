#include <filesystem>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/commands/export_formats.h"
#include "fakequant/cli/flags/output_kind.h"
#include "fakequant/export/safetensors/compressed_tensors.h"
#include "fakequant/export/safetensors/modelopt.h"

namespace fq::cli {
namespace {

std::string sibling_file(const std::string& path, const char* name) {
  return (std::filesystem::path(path).parent_path() / name).string();
}
std::string config_path(const std::string& path) { return sibling_file(path, "hf_quant_config.json"); }

}  // namespace

std::vector<WrittenFile> safetensors_files(const ExportOptions& options) {
  check_several(options);
  const WrittenFile weights = written_file(options, "model.safetensors", kind::safetensors);
  return {weights, {config_path(weights.path), kind::modelopt_config, weights.make_folder}};
}

ExportWriter convert_to_safetensors(Network& network, const ExportOptions& options) {
  const std::string path = output_file(options, "model.safetensors"), config = config_path(path);
  // Reading the name of the algorithm also checks in the plan that the format has the network's quantizers.
  const std::string algorithm = modelopt_config(network.module())["quantization"]["quant_algo"];
  return [network, path, config, algorithm](Output& output) -> nlohmann::ordered_json {
    save_modelopt(path, network.module(), FAKEQUANT_VERSION);
    // Counted in the written file, because weights that are packed become several tensors.
    const auto count = SafetensorsFile(path).entries().size();
    output.line(fmt::format("{} tensors, {}, in {} and {}", count, algorithm, path, config));
    return {{"files", {path, config}}, {"quant_algo", algorithm}, {"tensors", count}};
  };
}

std::vector<WrittenFile> compressed_tensors_files(const ExportOptions& options) {
  check_several(options);
  const WrittenFile weights = written_file(options, "model.safetensors", kind::safetensors);
  return {weights, {sibling_file(weights.path, "config.json"), kind::compressed_config, weights.make_folder}};
}

ExportWriter convert_to_compressed_tensors(Network& network, const ExportOptions& options) {
  const std::string path = output_file(options, "model.safetensors"),
                    config = sibling_file(path, "config.json");
  const std::string format = compressed_tensors_config(network.module())["quantization_config"]["format"];
  return [network, path, config, format](Output& output) -> nlohmann::ordered_json {
    save_compressed_tensors(path, network.module(), FAKEQUANT_VERSION);
    const auto count = SafetensorsFile(path).entries().size();
    output.line(fmt::format("{} tensors, {}, in {} and {}", count, format, path, config));
    return {{"files", {path, config}}, {"format", format}, {"tensors", count}};
  };
}

}  // namespace fq::cli
