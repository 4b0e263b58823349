#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "fakequant/report/detail/histogram_plot.h"
#include "fakequant/report/detail/html.h"
#include "fakequant/report/detail/page_assets.h"
#include "fakequant/report/detail/runs/line_plot.h"
#include "fakequant/report/detail/runs/run_summary.h"

namespace fq::html {
namespace {

using fq::detail::RunSummary;

// As for the calibration page: inline style and script, no requests.
constexpr const char* kComparePolicy =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action "
    "'none'";
constexpr PlotArea kScatter{.left = 58, .right = 600, .top = 14, .bottom = 220};
constexpr PlotArea kNameArea{.left = 58, .right = 636, .top = 2, .bottom = 218};

double kilobytes(const RunSummary& run) { return static_cast<double>(*run.bytes) / 1000; }

std::string accuracy_text(const RunSummary& run) {
  return fmt::format("{:.2f} %{}", *run.accuracy, run.validated ? "" : " (training)");
}

std::string run_circle(const RunSummary& run, const NamedPoint& at) {
  return fmt::format(
      "<g class=f-0><circle{} cx=\"{:.1f}\" cy=\"{:.1f}\" r=4><title>{}: {}, {:.1f} KB</title></circle></g>",
      run.validated ? "" : " class=hollow", at.x, at.y, escaped(run.name), accuracy_text(run),
      kilobytes(run));
}

/// Returns labels in one font size. The style sheet shows the size that fits the width of the page.
std::string name_labels(const std::vector<NamedPoint>& points, const char* screen, double font_size) {
  std::string out = fmt::format("<g class={}>", screen);
  for (const auto& label : place_labels(points, kNameArea, font_size)) {
    if (label.away)
      out += fmt::format("<line class=axis x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>",
                         label.from_x, label.from_y, label.x, label.y - font_size / 3);
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>", label.x, label.y,
                       label.ends_here ? " text-anchor=end" : "", escaped(label.text));
  }
  return out + "</g>";
}

// Returns accuracy over size of the runs that have both. One point has no use.
std::string scatter(const std::vector<RunSummary>& runs) {
  std::vector<RunSummary> known;
  std::ranges::copy_if(runs, std::back_inserter(known),
                       [](const auto& run) { return run.accuracy && run.bytes; });
  if (known.size() < 2) return {};
  const auto by_accuracy = [](const auto& run) { return *run.accuracy; };
  const double lowest = *std::ranges::min_element(known, {}, by_accuracy)->accuracy;
  const double highest = *std::ranges::max_element(known, {}, by_accuracy)->accuracy;
  // Marks are round numbers. Runs of nearly equal accuracy get an axis of at least 0.1 points, so that noise
  // does not fill the figure.
  const double step = round_step(std::max(highest - lowest, 0.1));
  const double low = std::floor(lowest / step) * step;
  const Scale y{kScatter, low, std::max(std::ceil(highest / step) * step, low + step)};
  const double most =
      kilobytes(*std::ranges::max_element(known, {}, [](const auto& run) { return *run.bytes; }));
  // The room at the right is for the label of the largest run.
  const Axis x{kScatter, most * 1.12};
  std::string out =
      "<section class=card><h3>Accuracy, percent, over kilobytes of weights</h3><svg class=histogram "
      "viewBox=\"0 0 640 250\" role=img aria-label=\"Accuracy over bytes\">" +
      y.grid() + x.ticks();
  std::vector<NamedPoint> points;
  for (const auto& run : known) points.push_back({x.at(kilobytes(run)), y.at(*run.accuracy), run.name});
  // Labels are drawn twice, for wide and narrow pages. The style sheet hides one of them.
  out += name_labels(points, "wide", 11) + name_labels(points, "narrow", 18);
  for (std::size_t i = 0; i < known.size(); ++i) out += run_circle(known[i], points[i]);
  const bool of_training = std::ranges::any_of(known, [](const auto& run) { return !run.validated; });
  return "<div class=cards>" + out + "</svg>" +
         (of_training ? "<p class=note>Hollow: accuracy in training, of a run without --val-fraction.</p>"
                      : "") +
         "</section></div>\n";
}

std::string heads(const std::vector<std::string>& flags) {
  int column = 0;
  std::string out = "<thead><tr>";
  for (const char* label : {"Run", "Command", "Model", "Format", "State"})
    out += head(label, column++, label, "text");
  for (const char* label : {"Accuracy", "Loss", "Bits", "Bytes", "Step, ms", "Time, s", "Sample, ms"})
    out += head(label, column++, label);
  for (const auto& flag : flags) out += head("flag-" + escaped(flag), column++, "--" + escaped(flag), "text");
  return out + "</tr></thead>";
}

// Cells in the order of `heads`: fixed columns, then one column per flag.
std::string line(const RunSummary& run, const std::vector<std::string>& flags) {
  std::string out = fmt::format("<tr data-name=\"{0}\"><td class=\"text name\">{0}</td>", escaped(run.name));
  for (const auto* text : {&run.command, &run.model, &run.format, &run.state})
    out += "<td class=text>" + escaped(*text) + "</td>";
  const auto bytes = run.bytes ? std::optional<double>(static_cast<double>(*run.bytes)) : std::nullopt;
  out += cell(run.accuracy, run.accuracy ? accuracy_text(run) : std::string(unknown)) +
         cell(run.loss, number(run.loss)) + cell(run.bits, number(run.bits, 3)) +
         cell(bytes, run.bytes ? grouped(*run.bytes) : std::string(unknown)) +
         cell(run.ms_per_step, number(run.ms_per_step, 3)) + cell(run.seconds, number(run.seconds, 3)) +
         cell(run.latency_ms,
              number(run.latency_ms, 3) + (run.engine.empty() ? "" : " (" + escaped(run.engine) + ")"));
  for (const auto& flag : flags) out += "<td class=text>" + escaped(flag_text(run, flag)) + "</td>";
  return out + "</tr>\n";
}

}  // namespace

std::string compare_html(const std::vector<RunSummary>& runs) {
  const auto flags = differing_flags(runs);
  std::string out =
      "<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n<meta name=generator "
      "content=fakequant>\n";
  out += fmt::format("<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n", kComparePolicy);
  out += "<meta name=viewport content=\"width=device-width, initial-scale=1\">\n<title>Runs</title>\n";
  out += fmt::format("<style>{}{}</style>\n</head>\n<body>\n<main>\n<h1>{} runs</h1>\n", page_style,
                     run_style, runs.size());
  out +=
      scatter(runs) +
      "<h2>Runs</h2>\n<p>Bits are per parameter. The time of a sample requires --latency. The columns at the "
      "right are flags that differ between the runs. Click a heading to sort.</p>\n<div class=tools "
      "data-of=runs></div>\n";
  out += "<div class=sheet><table class=sortable>" + heads(flags) + "<tbody>\n";
  for (const auto& run : runs) out += line(run, flags);
  return out + "</tbody></table></div>\n</main>\n<script>" + page_script + "</script>\n</body>\n</html>\n";
}

}  // namespace fq::html
