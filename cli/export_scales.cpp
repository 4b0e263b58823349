#include <filesystem>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/export_formats.h"
#include "fakequant/export/scales.h"
#include "fakequant/layers/quantize.h"

namespace fq::cli {
namespace {

/// "out/" and folders give out/scales, anything else is the beginning of the names: "a/int8" gives
/// a/int8_scales.
std::string prefix_of(const std::string& output) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (output.ends_with('/')) fs::create_directories(output, error);
  if (fs::is_directory(output, error)) return (fs::path(output) / "scales").lexically_normal().string();
  return output + "_scales";
}

}  // namespace

nlohmann::ordered_json export_scales(Network& network, const Flags& flags, Output& output) {
  const std::string prefix = prefix_of(flags.text("output"));
  save_scales_json(prefix + ".json", *network.module);
  save_scales_h5(prefix + ".h5", *network.module);
  const auto count = named_quantizers(*network.module).size();
  output.line(fmt::format("scales of {} quantizers in {}.json and {}.h5", count, prefix, prefix));
  return {{"files", {prefix + ".json", prefix + ".h5"}}, {"quantizers", count}};
}

}  // namespace fq::cli
