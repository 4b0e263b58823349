#include "fakequant/cli/fine_tuning/layer_formats.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "fakequant/cli/command.h"
#include "fakequant/cli/data.h"
#include "fakequant/cli/flags/flag_words.h"
#include "fakequant/cli/flags/listed_words.h"
#include "fakequant/cli/tables/sensitivity_table.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/network/detail/data_checks.h"
#include "fakequant/train/loop/checkpoint.h"
#include "fakequant/train/sensitivity/auto_quantize.h"

namespace fq::cli {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kMostCalibrated = std::int64_t{1} << 40;

/// Each once, that of --preset first.
std::vector<std::string> formats_of(const Flags& flags) {
  std::vector<std::string> out{flags.text("preset")};
  for (const auto& name : listed_words(flags.text("formats")))
    if (std::ranges::find(out, name) == out.end()) out.push_back(name);
  return out;
}

AutoQuantizeOptions plan_options(const Flags& flags, ordered_json base) {
  base.erase("preset");
  AutoQuantizeOptions out;
  out.constraint.effective_bits = flags.number("effective-bits", 0, kFloatWeightBits);
  out.formats = formats_of(flags);
  out.config = base.dump();
  out.calibration_samples = 0;  // all of those that are drawn
  return out;
}

/// With batch norm folded as it will be.
Network float_copy(const Network& network, const Flags& flags) {
  Network out = network.clone();
  if (!flags.on("keep-bn") && !out.folded()) out.fold();
  return out;
}

}  // namespace

void add_layer_format_flags(FlagSet& set) {
  set.value("effective-bits", "BITS",
            "a weight may have on average: each layer gets the format of --preset or --formats that costs "
            "least (as fakequant sensitivity plans it)")
      .value("formats", "LIST", "presets beside --preset for --effective-bits to choose from", "w4a4,int8");
}

bool chooses_formats(const Flags& flags) { return flags.given("effective-bits"); }

void check_layer_formats(const Flags& flags) {
  FQ_CHECK(chooses_formats(flags) || !flags.given("formats"), flags.command(),
           "--formats is for --effective-bits: give that too, or leave it out");
  if (!chooses_formats(flags)) return;
  FQ_CHECK(flags.given("preset"), flags.command(),
           "--effective-bits goes with --preset: give the format of fewest bits, such as w2a2");
  FQ_CHECK(flags.text("method") != "none", flags.command(),
           "--effective-bits measures calibrated formats: leave out --method none");
  for (const auto& format : plan_options(flags, ordered_json::object()).formats)
    if (format != "none") (void)QuantConfig::preset(format);
}

void check_formats_for(const Network& network, const Flags& flags, const Quantization& base) {
  check_classifies(network, flags.command());
  Network copy = float_copy(network, flags);
  naming_flags(
      [&] { check_auto_quantize(copy.module(), copy.input_shape(), plan_options(flags, base.json)); });
}

Quantization choose_formats(const Network& network, const Flags& flags, const Quantization& base,
                            const std::shared_ptr<const Dataset>& data, Output& output) {
  check_classifies(network, flags.command());
  const auto samples = some_samples(data, flags.integer("samples", 1, kMostCalibrated), 0);
  Network copy = float_copy(network, flags);
  copy.module().to(network.module().device());
  DataLoader loader(samples, {.batch_size = flags.integer("batch", 1, 1 << 20), .shuffle = false});
  const auto plan = naming_flags([&] { return auto_quantize(copy, loader, plan_options(flags, base.json)); });
  if (stop_requested()) throw Interrupted(flags.command(), ": nothing was written");
  output.line(plan_table(plan));
  return checked_quantization(flags, fq::detail::parse_json<ordered_json>(plan.config));
}

}  // namespace fq::cli
