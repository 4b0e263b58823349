#include "fakequant/report/calibration_page.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/report/detail/histogram_plot.h"
#include "fakequant/report/detail/html.h"
#include "fakequant/report/detail/page_assets.h"
#include "fakequant/train/calibration/calibration_report.h"
#include "fakequant/train/sensitivity/auto_quantize.h"
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

/// Returns a table of all quantizers, which the script of the page sorts. Names link to #q<index>.
std::string quantizer_table(const std::vector<QuantizerReport>& quantizers) {
  std::string out = "<div class=sheet><table class=\"sortable layers\">" + heads() + "<tbody>\n";
  for (std::size_t i = 0; i < quantizers.size(); ++i) out += line(quantizers[i], i + 1);
  return out + "</tbody></table></div>\n";
}

/// Returns a table of the range in force and the ranges of the methods.
std::string range_table(const QuantizerReport& q) {
  std::string out =
      "<table><thead><tr><th scope=col class=text>Range</th><th scope=col>amax</th><th scope=col>Clipped</th>"
      "<th scope=col>SQNR</th></tr></thead><tbody>";
  out += range_line(q.in_force, "force", "in force: " + escaped(q.in_force.method));
  for (const auto& range : q.methods) out += range_line(range, range.method, range.method);
  return out + "</tbody></table>";
}

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

/// Returns the plan: its request and result, a drawing of the layers (width: weights, height: bits), and a
/// table of the cost of each format in each layer.
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

}  // namespace
}  // namespace fq::html

namespace fq {
namespace {

using namespace html;
using Quantizers = std::vector<QuantizerReport>;

// The page uses inline style and script. The policy forbids everything else, so the page sends no request.
constexpr const char* kScriptPolicy =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action "
    "'none'";

// Returns a link to the card of the quantizer. Cards are numbered from 1 in the order of the table.
std::string link(const Quantizers& all, const QuantizerReport& q) {
  return fmt::format("<a class=name href=\"#q{}\" title=\"{}\">{}</a>", &q - all.data() + 1, escaped(q.name),
                     escaped(q.name));
}

/// Returns the quantizer with the largest key; null if no quantizer has a key.
template <class Key>
const QuantizerReport* most(const Quantizers& all, const Key& key) {
  const QuantizerReport* out = nullptr;
  for (const auto& q : all)
    if (key(q) && (out == nullptr || *key(q) > *key(*out))) out = &q;
  return out;
}

std::string tiles(const Quantizers& all) {
  const auto weights = std::ranges::count_if(all, &QuantizerReport::is_weight);
  std::string out =
      "<div class=tiles>\n" + tile("Quantizers", std::to_string(all.size()),
                                   fmt::format("{} activations, {} weights",
                                               static_cast<std::ptrdiff_t>(all.size()) - weights, weights));
  // `most` finds the largest key, so the lowest SQNR is the largest negated one.
  const auto* noisy = most(all, [](const QuantizerReport& q) {
    return q.in_force.sqnr_db ? std::optional(-*q.in_force.sqnr_db) : std::nullopt;
  });
  if (noisy != nullptr) out += tile("Lowest SQNR", decibels(noisy->in_force.sqnr_db), link(all, *noisy));
  const auto* clipping = most(all, [](const QuantizerReport& q) { return q.in_force.clipped; });
  if (clipping != nullptr)
    out += tile("Most clipped", percent(clipping->in_force.clipped),
                *clipping->in_force.clipped > 0 ? link(all, *clipping) : "nothing is clipped");
  const auto unknown_count = std::ranges::count_if(all, [](const auto& q) { return !q.in_force.sqnr_db; });
  if (unknown_count > 0) out += tile("Without SQNR", std::to_string(unknown_count), "see their notes");
  return out + "</div>\n";
}

std::string facts(const CalibrationPage& page) {
  std::string out;
  for (const auto& [name, value] : page.facts)
    out += fmt::format("{}{} <b>{}</b>", out.empty() ? "" : " · ", escaped(name), escaped(value));
  return out.empty() ? out : "<p>" + out + "</p>\n";
}

std::string legend() {
  std::string out = "<div class=legend><span class=m-force>in force</span>";
  // Each method has the colour of its class in all figures of the page.
  for (const auto& method : report_methods()) out += fmt::format("<span class=m-{0}>{0}</span>", method);
  return out + "<span class=m-beyond>values beyond the range in force</span></div>\n";
}

/// Returns each reason once, with the ranges that it applies to.
std::string notes(const QuantizerReport& q) {
  std::vector<std::pair<std::string, std::string>> found;
  const auto add = [&found](const std::string& reason, const std::string& label) {
    if (reason.empty()) return;
    const auto same = std::ranges::find(found, reason, &std::pair<std::string, std::string>::first);
    if (same == found.end())
      found.emplace_back(reason, label);
    else
      same->second += ", " + label;
  };
  add(q.in_force.reason, "in force");
  for (const auto& range : q.methods) add(range.reason, range.method);
  std::string out;
  for (const auto& [reason, labels] : found)
    out += fmt::format("<p class=note>{}: {}</p>", escaped(labels), escaped(reason));
  return out;
}

// A card has the histogram of one quantizer, its ranges by each method, and the notes.
std::string card(const QuantizerReport& q, std::size_t index) {
  std::string also;
  for (const auto& alias : q.aliases) also += (also.empty() ? " · also " : ", ") + escaped(alias);
  std::string seen;
  if (q.minimum)
    seen = fmt::format(" · {} values, minimum {}, largest |x| {}", grouped(q.count), number(q.minimum),
                       number(q.largest));
  return fmt::format(
      "<section class=card id=q{} data-name=\"{}\"><h3 class=name>{}</h3><p class=facts>{}, "
      "{}{}{}</p>{}{}{}</section>\n",
      index, escaped(q.name), escaped(q.name), escaped(q.format), escaped(q.granularity), seen, also,
      histogram_svg(q), range_table(q), notes(q));
}

std::string body(const CalibrationPage& page) {
  std::string out =
      fmt::format("<main>\n<h1>{}</h1>\n", escaped(page.title)) + facts(page) + tiles(page.quantizers);
  out +=
      "<h2>Quantizers</h2>\n<p>Click a heading to sort, a name for its histogram.</p>\n<div "
      "class=tools data-of=quantizers></div>\n";
  out += quantizer_table(page.quantizers);
  if (page.plan) out += plan_section(*page.plan);
  out +=
      "<h2>Histograms</h2>\n<p>Counts of magnitudes on a logarithmic scale; the marks are each method's "
      "amax, bars "
      "where there is one for each channel.</p>\n" +
      legend() + "<div class=cards>\n";
  for (std::size_t i = 0; i < page.quantizers.size(); ++i) out += card(page.quantizers[i], i + 1);
  return out + "</div>\n</main>\n";
}

}  // namespace

std::string calibration_html(const CalibrationPage& page) {
  std::string out =
      "<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n<meta name=generator "
      "content=fakequant>\n";
  out += fmt::format("<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n", kScriptPolicy);
  out += "<meta name=viewport content=\"width=device-width, initial-scale=1\">\n";
  out +=
      fmt::format("<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n", escaped(page.title), page_style);
  // The script is last, so that it finds the tables when it runs.
  return out + body(page) + "<script>" + page_script + "</script>\n</body>\n</html>\n";
}

void save_calibration_html(const std::string& path, const CalibrationPage& page) {
  write_file(path, calibration_html(page));
}

}  // namespace fq
