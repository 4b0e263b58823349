#include "fakequant/report/detail/calibration_sections.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "fakequant/report/detail/histogram_plot.h"
#include "fakequant/report/detail/html.h"
#include "fakequant/train/sensitivity/sensitivity.h"

namespace fq::html {
namespace {

constexpr double kFullBar = 70;  // dB

// Returns one amax, or "lowest–highest" for ranges per channel or block. <wbr> allows a line break there.
std::string span_text(const RangeReport& range, int digits) {
  if (!range.highest || *range.lowest == *range.highest) return number(range.highest);
  return number(range.lowest, digits) + "–<wbr>" + number(range.highest, digits);
}

// The style sheet fills the cell up to --v.
std::string sqnr_cell(std::optional<double> sqnr) {
  const double share = std::clamp(sqnr.value_or(0) / kFullBar, 0.0, 1.0);
  return cell(sqnr, decibels(sqnr), "sqnr", fmt::format("--v:{:.0f}%", 100 * share));
}

// The second argument of `head` is the index of the column that a click sorts. Columns of both header rows
// must match the cells of `line`.
std::string heads() {
  const auto& methods = report_methods();
  std::string out = fmt::format(
      "<thead><tr><th colspan=4></th><th colspan=2 class=group>Values</th><th colspan=4 class=group>Range in "
      "force</th><th colspan={} class=group>amax by method</th></tr><tr>",
      methods.size());
  out += head("place", 0, "#") + head("name", 1, "Quantizer", "text") + head("format", 2, "Format", "text") +
         "<th scope=col class=text>Histogram</th>" + head("min", 4, "Min", "first") +
         head("largest", 5, "Max |x|") + head("method", 6, "Method", "text first") + head("amax", 7, "amax") +
         head("clipped", 8, "Clipped") + head("sqnr", 9, "SQNR");
  // The first ten columns are fixed, one column per method follows.
  for (std::size_t i = 0; i < methods.size(); ++i)
    out += head(methods[i], 10 + static_cast<int>(i),
                fmt::format("<span class=\"dot m-{0}\">{0}</span>", methods[i]), i == 0 ? "first" : "");
  return out + "</tr></thead>";
}

std::string line(const QuantizerReport& q, std::size_t index) {
  const auto& force = q.in_force;
  std::string out = fmt::format(
      "<tr data-name=\"{0}\"><td class=soft data-v={1}>{1}</td><td class=\"text name\"><a "
      "href=\"#q{1}\">{0}</a></td>"
      "<td class=text title=\"{2}\">{3}</td><td class=text>{4}</td>",
      escaped(q.name), index, escaped(q.granularity), escaped(q.format), histogram_thumbnail(q));
  out += cell(q.minimum, number(q.minimum), "first") + cell(q.largest, number(q.largest)) +
         fmt::format("<td class=\"text first\">{}</td>", escaped(force.method));
  out += cell(force.highest, span_text(force, 3), "range") + cell(force.clipped, percent(force.clipped)) +
         sqnr_cell(force.sqnr_db);
  for (const auto& range : q.methods)
    out += cell(range.highest, span_text(range, 3), &range == &q.methods.front() ? "range first" : "range");
  return out + "</tr>\n";
}

std::string range_line(const RangeReport& range, std::string_view kind, std::string_view label) {
  return fmt::format("<tr class=\"m-{}\"><td class=text>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>", kind,
                     label, span_text(range, 4), percent(range.clipped), decibels(range.sqnr_db));
}

}  // namespace

std::string quantizer_table(const std::vector<QuantizerReport>& quantizers) {
  std::string out = "<div class=sheet><table class=\"sortable layers\">" + heads() + "<tbody>\n";
  for (std::size_t i = 0; i < quantizers.size(); ++i) out += line(quantizers[i], i + 1);
  return out + "</tbody></table></div>\n";
}

std::string range_table(const QuantizerReport& q) {
  std::string out =
      "<table><thead><tr><th scope=col class=text>Range</th><th scope=col>amax</th><th scope=col>Clipped</th>"
      "<th scope=col>SQNR</th></tr></thead><tbody>";
  out += range_line(q.in_force, "force", "in force: " + escaped(q.in_force.method));
  for (const auto& range : q.methods) out += range_line(range, range.method, range.method);
  return out + "</tbody></table>";
}

namespace {

// Units of the figure, which the style sheet stretches to the width of the page.
constexpr double kWidth = 1000, kHeight = 112;
constexpr int kColours = 6;

// The plan stores NaN for a value that was not measured, for example the accuracy of data without labels.
std::optional<double> known(double value) { return std::isnan(value) ? std::nullopt : std::optional(value); }

std::string change(double value, int digits = 3) {
  return (value > 0 ? "+" : "") + number(known(value), digits);
}

/// Returns the change of a share in percentage points.
std::string points(double share) { return std::isnan(share) ? change(share) : change(100 * share) + " pp"; }

// Colours repeat after kColours formats. Equal formats have the same colour in figure, legend and table.
std::size_t format_index(const QuantizationPlan& plan, const std::string& format) {
  return static_cast<std::size_t>(std::ranges::find(plan.formats, format) - plan.formats.begin());
}

std::string colour_class(const QuantizationPlan& plan, const std::string& format) {
  return fmt::format("f-{}", format_index(plan, format) % kColours);
}

std::string tiles(const QuantizationPlan& plan) {
  const auto& constraint = plan.constraint;
  const std::string bits = constraint.effective_bits
                               ? fmt::format("at most {} requested", number(constraint.effective_bits))
                               : "weight elements";
  const std::string budget = constraint.accuracy_budget
                                 ? fmt::format("a drop of {} allowed", points(*constraint.accuracy_budget))
                                 : "measured, against float";
  return "<div class=tiles>\n" + tile("Effective bits", number(plan.effective_bits), bits) +
         tile("Accuracy change", points(plan.measured.accuracy_change), budget) +
         tile("Loss change", change(plan.measured.loss_change),
              "the layers alone add up to " + change(plan.predicted.loss_change)) +
         tile("Divergence", number(known(plan.measured.divergence), 3), "nats, mean over the images") +
         "</div>\n";
}

std::string legend(const QuantizationPlan& plan) {
  std::string out = "<div class=legend>";
  for (const auto& format : plan.formats) {
    const auto layers = std::ranges::count(plan.layers, format, &PlannedLayer::format);
    out += fmt::format("<span class={}>{}: {} {}</span>", colour_class(plan, format), escaped(format), layers,
                       layers == 1 ? "layer" : "layers");
  }
  return out + "</div>\n";
}

double count_weights(const QuantizationPlan& plan) {
  double sum = 0;
  for (const auto& layer : plan.layers) sum += static_cast<double>(layer.weights);
  return sum;
}

/// Draws the layers side by side. The area of a layer is the size of its weight.
std::string drawing(const QuantizationPlan& plan) {
  const double all = count_weights(plan);
  if (all == 0) return {};
  std::string out = fmt::format(
      "<svg class=plan viewBox=\"0 0 {} {}\" role=img aria-label=\"Bits of each layer\" "
      "preserveAspectRatio=none>",
      kWidth, kHeight);
  double x = 0;
  for (const auto& layer : plan.layers) {
    // A layer of float weights has the full height.
    const double width = kWidth * static_cast<double>(layer.weights) / all, bits = layer.chosen().bits;
    const double height = kHeight * std::min(bits / kFloatWeightBits, 1.0);
    if (width > 0)
      out += fmt::format(
          "<rect class={} x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\"><title>{}: {}, {} "
          "bits, {} "
          "weights</title></rect>",
          colour_class(plan, layer.format), x, kHeight - height, width, height, escaped(layer.layer),
          escaped(layer.format), number(bits), grouped(layer.weights));
    x += width;
  }
  return out +
         "</svg>\n<p>Layers in the order of execution, as wide as their weights, as high as their "
         "bits.</p>\n";
}

std::string heads(const QuantizationPlan& plan) {
  std::string out = fmt::format(
      "<thead><tr><th colspan=5></th><th colspan=4 class=group>Chosen</th><th colspan={} class=group>Change "
      "by format, "
      "this layer alone: {}</th></tr><tr>",
      std::max<std::size_t>(plan.formats.size(), 1), plan.score == DamageScore::loss ? "loss" : "divergence");
  out += head("plan-place", 0, "#") + head("plan-layer", 1, "Layer", "text") +
         head("plan-type", 2, "Type", "text") + head("plan-group", 3, "Group") +
         head("plan-weights", 4, "Weights") + head("plan-format", 5, "Format", "text first") +
         head("plan-bits", 6, "Bits") + head("plan-accuracy", 7, "Accuracy") + head("plan-loss", 8, "Loss");
  for (std::size_t i = 0; i < plan.formats.size(); ++i)
    out += head("plan-" + escaped(plan.formats[i]), 9 + static_cast<int>(i),
                fmt::format("<span class=\"dot {}\">{}</span>", colour_class(plan, plan.formats[i]),
                            escaped(plan.formats[i])),
                i == 0 ? "first" : "");
  return out + "</tr></thead>";
}

// Returns the number that the plan minimizes.
double damage_score(const QuantizationPlan& plan, const Damage& damage) {
  return plan.score == DamageScore::loss ? damage.loss_change : damage.divergence;
}

std::string scores(const QuantizationPlan& plan, const PlannedLayer& layer) {
  std::string out;
  for (const auto& format : plan.formats) {
    const auto found = std::ranges::find(layer.scores, format, &FormatScore::format);
    // Without a score, the format was not measured in this layer.
    const double score = found == layer.scores.end() ? NAN : damage_score(plan, found->damage);
    out += cell(known(score), change(score),
                std::string(&format == &plan.formats.front() ? "first" : "") +
                    (format == layer.format ? " taken" : ""));
  }
  return out;
}

std::string line(const QuantizationPlan& plan, const PlannedLayer& layer, std::size_t index) {
  const auto& chosen = layer.chosen();
  return fmt::format(
             "<tr data-name=\"{0}\"><td class=soft data-v={1}>{1}</td><td class=\"text name\">{0}</td><td "
             "class=text>{2}</td>",
             escaped(layer.layer), index, escaped(layer.type)) +
         cell(layer.group, std::to_string(layer.group)) +
         cell(static_cast<double>(layer.weights), grouped(layer.weights)) +
         fmt::format("<td class=\"text first\"><span class=\"dot {}\">{}</span></td>",
                     colour_class(plan, layer.format), escaped(layer.format)) +
         cell(chosen.bits, chosen.bits > 0 ? number(chosen.bits) : std::string(unknown)) +
         cell(known(chosen.damage.accuracy_change), points(chosen.damage.accuracy_change)) +
         cell(known(chosen.damage.loss_change), change(chosen.damage.loss_change)) + scores(plan, layer) +
         "</tr>\n";
}

}  // namespace

std::string plan_section(const QuantizationPlan& plan) {
  std::string out = fmt::format(
      "<h2 id=plan>Sensitivity plan</h2>\n<p>A format for each layer, chosen by the measured cost of "
      "each format in that layer alone, on {} images.</p>\n",
      grouped(plan.samples));
  out += tiles(plan) + legend(plan) + drawing(plan);
  out += "<div class=sheet><table class=\"sortable plan\">" + heads(plan) + "<tbody>\n";
  for (std::size_t i = 0; i < plan.layers.size(); ++i) out += line(plan, plan.layers[i], i + 1);
  return out + "</tbody></table></div>\n";
}

}  // namespace fq::html
