#include "fakequant/cli/layer_formats.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/flags/flag_words.h"
#include "fakequant/cli/tables/output.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/network/detail/data_checks.h"
#include "fakequant/train/loop/checkpoint.h"
#include "fakequant/train/sensitivity/auto_quantize.h"

namespace fq::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kFormats = "w4a4,int8";

/// Returns the candidate formats, each once. The format of --preset is the first.
std::vector<std::string> candidate_formats(const LayerFormatOptions& options, const std::string& preset) {
  std::vector<std::string> out{preset};
  for (const auto& name : listed_words(options.formats.value_or(kFormats)))
    if (std::ranges::find(out, name) == out.end()) out.push_back(name);
  return out;
}

AutoQuantizeOptions plan_options(const LayerFormatOptions& options, const QuantizationOptions& quantization,
                                 ordered_json base) {
  // Each format of the plan brings its own rules. `base` keeps target, scale and methods.
  base.erase("preset");
  AutoQuantizeOptions out;
  out.constraint.effective_bits = *options.effective_bits;
  out.formats = candidate_formats(options, *quantization.preset);
  out.config = base.dump();
  out.calibration_samples = 0;  // all drawn samples
  return out;
}

/// Returns a float copy with batch norm folded as in the quantized network.
Network float_copy(const Network& network, bool keep_bn) {
  Network out = network.clone();
  if (!keep_bn && !out.folded()) out.fold();
  return out;
}

}  // namespace

void add_layer_format_flags(FlagSet& set, LayerFormatOptions& options) {
  set.need({"formats"}, "effective-bits");
  set.value(options.effective_bits, "effective-bits", "BITS", {0, kFloatWeightBits},
            "largest average number of bits of a weight: each layer gets the format of --preset or --formats "
            "that costs "
            "least (as fakequant sensitivity plans it)")
      .value(options.formats, "formats", "LIST",
             fmt::format("presets for --effective-bits to choose from, besides --preset (default: {})",
                         kFormats));
}

void check_layer_formats(const LayerFormatOptions& options, const QuantizationOptions& quantization) {
  if (!options.effective_bits) return;
  FQ_CHECK(quantization.preset, quantization.command,
           "--effective-bits goes with --preset. Use the format of fewest bits, for example w2a2");
  FQ_CHECK(!quantization.skips_calibration(), quantization.command,
           "--effective-bits measures calibrated formats: leave out --method none");
  for (const auto& format : candidate_formats(options, *quantization.preset))
    if (format != "none") (void)QuantConfig::preset(format);
}

void check_plannable(const Network& network, const LayerFormatOptions& options,
                     const QuantizationOptions& quantization, const Quantization& base) {
  check_classifies(network, quantization.command);
  // The check and the choice quantize a copy. The run's network stays in float.
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
  // A clone is on the CPU.
  copy.module().to(network.module().device());
  DataLoader loader(samples, {.batch_size = batch, .shuffle = false});
  const auto plan = naming_flags(
      [&] { return auto_quantize(copy, loader, plan_options(options, quantization, base.json)); });
  if (stop_requested()) throw Interrupted(quantization.command, ": nothing was written");
  output.line(plan_table(plan));
  return checked_quantization(quantization, fq::detail::parse_json<ordered_json>(plan.config));
}

namespace {

struct TableRow {
  std::string layer, format;
  std::int64_t weights = 0;
  double bits = 0;
  Damage damage;
};

// NaN: the value needs labels, and the data has none.
std::string signed_number(double value, const char* format) {
  return std::isnan(value) ? "-" : fmt::format(fmt::runtime(format), value);
}

std::string damage_text(const Damage& damage) {
  return fmt::format("{:>12} {:>9} {:>11.6f}", signed_number(damage.loss_change, "{:+.6f}"),
                     signed_number(100 * damage.accuracy_change, "{:+.2f}"), damage.divergence);
}

std::string table_text(const std::vector<TableRow>& rows) {
  std::size_t layer_width = 5, format_width = 6;
  for (const auto& row : rows) {
    layer_width = std::max(layer_width, row.layer.size());
    format_width = std::max(format_width, row.format.size());
  }
  auto out = fmt::format("{:<{}}  {:<{}} {:>9} {:>6} {:>12} {:>9} {:>11}\n", "layer", layer_width, "format",
                         format_width, "weights", "bits", "loss", "accuracy", "divergence");
  for (const auto& row : rows)
    out += fmt::format("{:<{}}  {:<{}} {:>9} {:>6} {}\n", row.layer, layer_width, row.format, format_width,
                       row.weights > 0 ? std::to_string(row.weights) : "-",
                       row.weights > 0 ? fmt::format("{:g}", row.bits) : "-", damage_text(row.damage));
  return out;
}

std::string reference_text(const Evaluation& reference, std::int64_t samples) {
  if (reference.count == 0) return fmt::format("{} samples without labels", samples);
  return fmt::format("float: accuracy {}, loss {:.4f}, {} samples", percent(reference.accuracy, samples),
                     reference.loss, samples);
}

// Returns the cost of the measurement in float passes over the data: computed layer calls over the calls of
// one pass.
std::string cost_text(std::int64_t runs, std::int64_t pass_runs) {
  return fmt::format("{:.1f} passes over the layers",
                     double(runs) / double(std::max<std::int64_t>(pass_runs, 1)));
}

std::string change_text(const char* what, const Damage& damage) {
  if (std::isnan(damage.loss_change)) return fmt::format("{} divergence {:.6f}", what, damage.divergence);
  return fmt::format("{} loss {:+.4f}, accuracy {:+.2f} points, divergence {:.6f}", what, damage.loss_change,
                     100 * damage.accuracy_change, damage.divergence);
}

}  // namespace

std::string sensitivity_table(const SensitivityReport& report) {
  std::vector<TableRow> rows;
  for (const auto& layer : report.layers)
    rows.push_back({layer.layer, layer.format, layer.weights, layer.bits, layer.damage});
  return table_text(rows) + reference_text(report.reference, report.samples) + "; " +
         cost_text(report.layer_runs, report.pass_runs);
}

// Sorted by the score that the plan minimizes, the largest first.
std::string plan_table(const QuantizationPlan& plan) {
  std::vector<TableRow> rows;
  for (const auto& layer : plan.layers)
    rows.push_back({layer.layer, layer.format, layer.weights, layer.chosen().bits, layer.chosen().damage});
  std::ranges::stable_sort(rows, std::greater<>{}, [&](const TableRow& row) {
    return plan.score == DamageScore::loss ? row.damage.loss_change : row.damage.divergence;
  });
  return table_text(rows) + reference_text(plan.reference, plan.samples) + "; " +
         cost_text(plan.layer_runs, plan.pass_runs) + "\n" +
         fmt::format("{:.3f} bits a weight{}\n", plan.effective_bits,
                     plan.gap > 0 ? fmt::format(", at most {:.3g} above the least score", plan.gap) : "") +
         change_text("predicted:", plan.predicted) + "\n" + change_text("measured: ", plan.measured);
}

}  // namespace fq::cli
