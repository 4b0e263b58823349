#include <filesystem>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/evaluation.h"
#include "fakequant/cli/flag_groups.h"
#include "fakequant/cli/folding.h"
#include "fakequant/core/check.h"
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

FlagSet export_flags() {
  FlagSet set("export",
              "Writes the scales of a quantized checkpoint: scales.json to read, scales.h5 to compute with.",
              "CHECKPOINT -o FOLDER|PREFIX [flags]");
  set.group("Files")
      .argument("checkpoint", "FILE", "a calibrated checkpoint")
      .value("output,o", "FOLDER|PREFIX", "FOLDER/scales.json and .h5, or PREFIX_scales.json and .h5", ".");
  add_general_flags(set);
  return set;
}

nlohmann::ordered_json export_scales(const Flags& flags, Output& output) {
  apply_general_flags(flags);
  Network network = load_network(flags.required("checkpoint"));
  FQ_CHECK(network.quantized(), "export", "{} has no quantizers: run fakequant calibrate first",
           flags.text("checkpoint"));
  check_calibrated(network, "export");
  if (live_batch_norms(network) > 0) {
    const auto count = fold_network(network);
    output.line(fmt::format("{} batch norms folded first: fakequant fold tells what that changes", count));
  }
  const std::string prefix = prefix_of(flags.text("output"));
  save_scales_json(prefix + ".json", *network.module);
  save_scales_h5(prefix + ".h5", *network.module);
  const auto count = named_quantizers(*network.module).size();
  output.line(fmt::format("scales of {} quantizers in {}.json and {}.h5", count, prefix, prefix));
  return {{"files", {prefix + ".json", prefix + ".h5"}}, {"quantizers", count}};
}

}  // namespace fq::cli
