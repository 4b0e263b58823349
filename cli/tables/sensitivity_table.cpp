#include "fakequant/cli/tables/sensitivity_table.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "fakequant/cli/tables/output.h"

namespace fq::cli {
namespace {

struct TableRow {
  std::string layer, format;
  std::int64_t weights = 0;
  double bits = 0;
  Damage damage;
};

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
