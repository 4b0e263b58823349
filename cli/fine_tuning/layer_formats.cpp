#include "fakequant/cli/fine_tuning/layer_formats.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "fakequant/cli/command.h"
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

constexpr const char* kFormats = "w4a4,int8";

/// Each once, that of --preset first.
std::vector<std::string> formats_of(const LayerFormatOptions& options, const std::string& preset) {
  std::vector<std::string> out{preset};
  for (const auto& name : listed_words(options.formats.value_or(kFormats)))
    if (std::ranges::find(out, name) == out.end()) out.push_back(name);
  return out;
}

AutoQuantizeOptions plan_options(const LayerFormatOptions& options, const QuantizationOptions& quantization,
                                 ordered_json base) {
  base.erase("preset");
  AutoQuantizeOptions out;
  out.constraint.effective_bits = *options.effective_bits;
  out.formats = formats_of(options, *quantization.preset);
  out.config = base.dump();
  out.calibration_samples = 0;  // all of those that are drawn
  return out;
}

/// With batch norm folded as it will be.
Network float_copy(const Network& network, bool keep_bn) {
  Network out = network.clone();
  if (!keep_bn && !out.folded()) out.fold();
  return out;
}

}  // namespace

void add_layer_format_flags(FlagSet& set, LayerFormatOptions& options) {
  set.need({"formats"}, "effective-bits");
  set.value(options.effective_bits, "effective-bits", "BITS", {0, kFloatWeightBits},
            "a weight may have on average: each layer gets the format of --preset or --formats that costs "
            "least (as fakequant sensitivity plans it)")
      .value(options.formats, "formats", "LIST",
             fmt::format("presets for --effective-bits to choose from, besides --preset (default: {})",
                         kFormats));
}

void check_layer_formats(const LayerFormatOptions& options, const QuantizationOptions& quantization) {
  if (!options.effective_bits) return;
  FQ_CHECK(quantization.preset, quantization.command,
           "--effective-bits goes with --preset: give the format of fewest bits, such as w2a2");
  FQ_CHECK(!quantization.without_ranges(), quantization.command,
           "--effective-bits measures calibrated formats: leave out --method none");
  for (const auto& format : formats_of(options, *quantization.preset))
    if (format != "none") (void)QuantConfig::preset(format);
}

void check_formats_for(const Network& network, const LayerFormatOptions& options,
                       const QuantizationOptions& quantization, const Quantization& base) {
  check_classifies(network, quantization.command);
  Network copy = float_copy(network, quantization.keep_bn);
  naming_flags([&] {
    check_auto_quantize(copy.module(), copy.input_shape(), plan_options(options, quantization, base.json));
  });
}

Quantization choose_formats(const Network& network, const LayerFormatOptions& options,
                            const QuantizationOptions& quantization, const Quantization& base,
                            const std::shared_ptr<const Dataset>& samples, std::int64_t batch,
                            Output& output) {
  Network copy = float_copy(network, quantization.keep_bn);
  copy.module().to(network.module().device());
  DataLoader loader(samples, {.batch_size = batch, .shuffle = false});
  const auto plan = naming_flags(
      [&] { return auto_quantize(copy, loader, plan_options(options, quantization, base.json)); });
  if (stop_requested()) throw Interrupted(quantization.command, ": nothing was written");
  output.line(plan_table(plan));
  return checked_quantization(quantization, fq::detail::parse_json<ordered_json>(plan.config));
}

}  // namespace fq::cli
