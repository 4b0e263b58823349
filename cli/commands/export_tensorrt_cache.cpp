#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/commands/export_formats.h"
#include "fakequant/cli/flags/output_kind.h"
#include "fakequant/export/tensorrt_cache.h"

namespace fq::cli {

std::vector<WrittenFile> tensorrt_cache_files(const ExportOptions& options) {
  return {written_file(options, "calibration.cache", kind::tensorrt_cache)};
}

ExportWriter convert_to_tensorrt_cache(Network& network, const ExportOptions& options) {
  const auto calibrator = options.minmax ? TensorrtCalibrator::min_max : TensorrtCalibrator::entropy2;
  const auto header = tensorrt_cache_header(calibrator, static_cast<int>(options.trt_version));
  return [path = output_file(options, "calibration.cache"),
          cache = tensorrt_cache(network.module(), header)](Output& output) -> nlohmann::ordered_json {
    save_tensorrt_cache(path, cache);
    output.line(fmt::format("{} scales in {}", cache.scales.size(), path));
    return {{"files", {path}}, {"header", cache.header}, {"scales", cache.scales.size()}};
  };
}

}  // namespace fq::cli
