#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/commands/export_formats.h"
#include "fakequant/cli/data.h"
#include "fakequant/cli/evaluation.h"
#include "fakequant/cli/flags/flag_groups.h"
#include "fakequant/cli/flags/output_kind.h"
#include "fakequant/core/trace.h"
#include "fakequant/export/scales.h"
#include "fakequant/export/tensorrt_cache.h"
#include "fakequant/layers/quantize.h"

namespace fq::cli {
namespace {

/// Returns the beginning of the file names. A path that is not a folder is a prefix: "a/int8" gives
/// a/int8_scales.
std::string scales_prefix(const ExportOptions& options) {
  // `output_file` changes the path only for a folder.
  const std::string file = output_file(options, "scales");
  return file == options.output ? file + "_scales" : file;
}

/// Counts the clipped values of the samples. Returns no counts without data.
ClipCounts clip_counts(Network& network, const std::shared_ptr<const Dataset>& data,
                       const ExportOptions& options, Output& output) {
  if (data == nullptr) return {};
  network.module().to(chosen_device(options.general, "export"));
  // The counter is a recorder: it sees the inputs of all quantizers during the forward passes of its scope.
  ClipCounter counter(network.module());
  const RecordScope scope(counter);
  visit_batches(
      network, data, options.data.batch, [](const Batch&, const Variable&) {}, output, "export");
  return counter.counts();
}

}  // namespace

std::vector<WrittenFile> scales_files(const ExportOptions& options) {
  check_several(options);
  const std::string prefix = scales_prefix(options);
  const bool make_folder = options.output.ends_with('/');
  return {{prefix + ".json", kind::scales_json, make_folder}, {prefix + ".h5", kind::scales, make_folder}};
}

ExportWriter convert_to_scales(Network& network, const ExportOptions& options) {
  std::shared_ptr<const Dataset> data;
  if (!options.data.data.empty())
    data = open_network_data(network, options.data.data, options.data.split, Labels::none, "export");
  return [network, data, &options](Output& output) mutable -> nlohmann::ordered_json {
    const ClipCounts clips = clip_counts(network, data, options, output);
    const std::string prefix = scales_prefix(options);
    save_scales(prefix, network.module(), clips);
    const auto count = named_quantizers(network.module()).size();
    output.line(fmt::format("scales of {} quantizers in {}.json and {}.h5", count, prefix, prefix));
    return {{"files", {prefix + ".json", prefix + ".h5"}}, {"quantizers", count}};
  };
}

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
