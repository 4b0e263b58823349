#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/commands/export_formats.h"
#include "fakequant/cli/flags/output_kind.h"
#include "fakequant/export/tensorrt_cache.h"

namespace fq::cli {
namespace {

TensorrtCache cache_of(Network& network, const Flags& flags) {
  const auto calibrator = flags.choice("calibrator", {"entropy", "minmax"}) == "entropy"
                              ? TensorrtCalibrator::entropy2
                              : TensorrtCalibrator::min_max;
  const auto version = static_cast<int>(flags.integer("trt-version", 1, 99'999'999));
  return tensorrt_cache(network.module(), tensorrt_cache_header(calibrator, version));
}

}  // namespace

std::vector<WrittenFile> tensorrt_cache_files(const Flags& flags) {
  return {written_for(flags, "calibration.cache", kind::tensorrt_cache)};
}

void check_tensorrt_cache(Network& network, const Flags& flags) { (void)cache_of(network, flags); }

nlohmann::ordered_json export_tensorrt_cache(Network& network, const Flags& flags, Output& output) {
  const std::string path = file_for(flags, "calibration.cache");
  const TensorrtCache cache = cache_of(network, flags);
  save_tensorrt_cache(path, cache);
  output.line(fmt::format("{} scales in {}", cache.scales.size(), path));
  return {{"files", {path}}, {"header", cache.header}, {"scales", cache.scales.size()}};
}

}  // namespace fq::cli
