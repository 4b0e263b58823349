#include <algorithm>
#include <array>

#include "fakequant/report/detail/runs/line_plot.h"
#include "fakequant/report/detail/runs/sections.h"

namespace fq::html {
namespace {

using fq::detail::number_at;
using fq::detail::RunRecord;

Curve curve_of(const RunRecord& record, const char* event, const std::string& key, const std::string& name) {
  Curve out{name};
  for (const auto& line : record.lines)
    if (line["event"] == event && line.contains(key))
      out.points.emplace_back(number_at(line, "step"), number_at(line, key));
  return out;
}

std::string two_curves(const RunRecord& record, double last_step, const std::string& title,
                       const std::string& key, Span span = Span::linear) {
  return line_plot(title,
                   {curve_of(record, "step", key, "training, mean of the epoch so far"),
                    curve_of(record, "epoch", "val_" + key, "validation")},
                   last_step, span);
}

/// Names of what validation tells beside loss and accuracy.
std::vector<std::string> other_scores(const RunRecord& record) {
  constexpr std::array kShown{"val_loss", "val_accuracy"};
  std::vector<std::string> out;
  const auto* last = record.last("epoch");
  if (last == nullptr) return out;
  for (const auto& [key, value] : last->items())
    if (key.starts_with("val_") && value.is_number() && std::ranges::find(kShown, key) == kShown.end())
      out.push_back(key);
  return out;
}

}  // namespace

std::string curves_section(const RunRecord& record, double last_step) {
  std::string out = two_curves(record, last_step, "Loss", "loss", Span::logarithmic) +
                    two_curves(record, last_step, "Accuracy, percent", "accuracy");
  for (const auto& key : other_scores(record))
    out += line_plot(key.substr(4), {curve_of(record, "epoch", key, "validation")}, last_step);
  out += line_plot("Learning rate", {curve_of(record, "step", "lr", "of the step")}, last_step);
  out +=
      line_plot("Samples a second", {curve_of(record, "step", "images_per_second", "training")}, last_step);
  return out.empty() ? out : "<h2>Curves</h2>\n<div class=cards>\n" + out + "</div>\n";
}

}  // namespace fq::html
