#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/commands/export_formats.h"
#include "fakequant/cli/data.h"
#include "fakequant/cli/evaluation.h"
#include "fakequant/cli/flags/flag_groups.h"
#include "fakequant/cli/flags/output_kind.h"
#include "fakequant/core/trace.h"
#include "fakequant/export/scales.h"
#include "fakequant/layers/quantize.h"

namespace fq::cli {
namespace {

/// Anything but a folder is the beginning of the names: "a/int8" gives a/int8_scales.
std::string prefix_of(const Flags& flags) {
  const std::string file = file_for(flags, "scales");
  return file == flags.text("output") ? file + "_scales" : file;
}

/// Of the samples of --data; none without it.
ClipCounts clip_counts(Network& network, const Flags& flags, Output& output) {
  if (!flags.given("data")) return {};
  const auto data = open_data_for(network, flags, flags.text("split"), Labels::none);
  network.module().to(device_of(flags));
  ClipCounter counter(network.module());
  const RecordScope scope(counter);
  for_each_batch(
      network, data, flags.integer("batch", 1, 1 << 20), [](const Batch&, const Variable&) {}, output,
      "export");
  return counter.counts();
}

}  // namespace

std::vector<WrittenFile> scales_files(const Flags& flags) {
  check_several(flags);
  const std::string prefix = prefix_of(flags);
  const bool make_folder = flags.text("output").ends_with('/');
  return {{prefix + ".json", kind::scales_json, make_folder}, {prefix + ".h5", kind::scales, make_folder}};
}

void check_scales(Network& network, const Flags& flags) {
  if (flags.given("data")) (void)open_data_for(network, flags, flags.text("split"), Labels::none);
}

nlohmann::ordered_json export_scales(Network& network, const Flags& flags, Output& output) {
  const ClipCounts clips = clip_counts(network, flags, output);
  const std::string prefix = prefix_of(flags);
  save_scales(prefix, network.module(), clips);
  const auto count = named_quantizers(network.module()).size();
  output.line(fmt::format("scales of {} quantizers in {}.json and {}.h5", count, prefix, prefix));
  return {{"files", {prefix + ".json", prefix + ".h5"}}, {"quantizers", count}};
}

}  // namespace fq::cli
