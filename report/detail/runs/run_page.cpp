#include "fakequant/report/detail/runs/run_page.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/report/detail/html.h"
#include "fakequant/report/detail/page_assets.h"
#include "fakequant/report/detail/picture.h"
#include "fakequant/report/detail/runs/line_plot.h"
#include "fakequant/report/detail/runs/run_record.h"

namespace fq::html {
namespace {

using fq::detail::number_field;
using fq::detail::RunRecord;

// Returns the values of a key in the lines of one event, by step.
Curve read_curve(const RunRecord& record, const char* event, const std::string& key,
                 const std::string& name) {
  Curve out{name};
  for (const auto& line : record.lines)
    if (line["event"] == event && line.contains(key))
      out.points.emplace_back(number_field(line, "step"), number_field(line, key));
  return out;
}

// Steps record the mean since the start of their epoch, epochs record the validation.
std::string two_curves(const RunRecord& record, double last_step, const std::string& title,
                       const std::string& key, Span span = Span::linear) {
  return line_plot(title,
                   {read_curve(record, "step", key, "training, mean of the epoch so far"),
                    read_curve(record, "epoch", "val_" + key, "validation")},
                   last_step, span);
}

/// Returns the keys of validation scores other than loss and accuracy.
std::vector<std::string> other_scores(const RunRecord& record) {
  constexpr std::array kShown{"val_loss", "val_accuracy"};
  std::vector<std::string> out;
  const auto* last = record.last("epoch");
  if (last == nullptr) return out;
  for (const auto& [key, value] : last->items())
    // Loss and accuracy have plots of their own.
    if (key.starts_with("val_") && value.is_number() && std::ranges::find(kShown, key) == kShown.end())
      out.push_back(key);
  return out;
}

/// Returns curves of loss, accuracy or other scores, and learning rate.
std::string curves_section(const RunRecord& record, double last_step) {
  std::string out = two_curves(record, last_step, "Loss", "loss", Span::logarithmic) +
                    two_curves(record, last_step, "Accuracy, percent", "accuracy");
  for (const auto& key : other_scores(record))
    out += line_plot(key.substr(4), {read_curve(record, "epoch", key, "validation")}, last_step);
  out += line_plot("Learning rate", {read_curve(record, "step", "lr", "of the step")}, last_step);
  out +=
      line_plot("Samples a second", {read_curve(record, "step", "images_per_second", "training")}, last_step);
  return out.empty() ? out : "<h2>Curves</h2>\n<div class=cards>\n" + out + "</div>\n";
}

using fq::detail::RunRecord;

constexpr int kWorkColours = 10;

std::string flat_value(const nlohmann::ordered_json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string details_table(const std::string& title, const nlohmann::ordered_json& object) {
  if (object.empty()) return {};
  std::string out = fmt::format("<details><summary>{}</summary><table><tbody>\n", escaped(title));
  for (const auto& [key, value] : object.items())
    out += fmt::format("<tr><td class=text>{}</td><td class=text>{}</td></tr>\n", escaped(key),
                       escaped(flat_value(value)));
  return out + "</tbody></table></details>\n";
}

/// Returns a bar that divides the time of a step by kind of work.
std::string phases_section(const RunRecord& record) {
  const auto* last = record.last("epoch");
  if (last == nullptr || !last->contains("phases")) return {};
  std::vector<std::pair<std::string, double>> work;
  double whole = 0;
  for (const auto& [kind, milliseconds] : (*last)["phases"].items()) {
    work.emplace_back(kind, milliseconds.is_number() ? milliseconds.get<double>() : 0.0);
    whole += work.back().second;
  }
  if (whole <= 0) return {};
  // Largest first, kinds of equal time stay in the order of the record.
  std::ranges::stable_sort(work, std::greater(), &std::pair<std::string, double>::second);
  std::string bar, legend;
  for (std::size_t i = 0; i < work.size(); ++i) {
    const auto& [kind, milliseconds] = work[i];
    const double share = milliseconds / whole;
    bar += fmt::format("<span class=\"f-{}\" style=\"width:{:.2f}%\" title=\"{}: {} ms\"></span>",
                       i % kWorkColours, 100 * share, escaped(kind), number(milliseconds));
    legend +=
        fmt::format("<span class=\"f-{}\">{} {:.0f} %</span>", i % kWorkColours, escaped(kind), 100 * share);
  }
  return fmt::format(
      "<h2>Time of a step</h2>\n<p>{} ms, the mean of all steps so far.</p>\n<div class=work>{}</div>\n<div "
      "class=legend>{}</div>\n",
      number(whole), bar, legend);
}

/// Returns flags and settings as tables that open on a click.
std::string settings_section(const nlohmann::ordered_json& config) {
  std::string out;
  for (const auto& [key, value] : config.items())
    if (value.is_object()) out += details_table(key, value);
  return out.empty() ? out : "<h2>Settings</h2>\n" + out;
}

using fq::detail::number_field;
using fq::detail::RunRecord;

/// Returns one number of one quantizer over the epochs.
Curve quantizer_curve(const RunRecord& record, const std::string& quantizer, const char* key) {
  Curve out{quantizer};
  for (const auto& line : record.lines)
    if (line["event"] == "epoch" && line.contains("quantizers") && line["quantizers"].contains(quantizer) &&
        line["quantizers"][quantizer].contains(key))
      out.points.emplace_back(number_field(line, "step"), number_field(line["quantizers"][quantizer], key));
  return out;
}

std::optional<double> final_value(const Curve& curve) {
  return curve.points.empty() ? std::nullopt : std::optional(curve.points.back().second);
}

// Returns the first and last range, their relative change, and the clipped share of one quantizer.
std::string quantizer_row(const RunRecord& record, const std::string& quantizer, double last_step) {
  const Curve amax = quantizer_curve(record, quantizer, "amax"),
              clipped = quantizer_curve(record, quantizer, "clipped");
  const auto first = amax.points.empty() ? std::nullopt : std::optional(amax.points.front().second);
  // A range that starts at 0 (a quantizer that has seen only zeros) has no relative change.
  const auto change = first && *first > 0 ? std::optional(*final_value(amax) / *first - 1) : std::nullopt;
  return fmt::format("<tr data-name=\"{0}\"><td class=\"text name\">{0}</td>", escaped(quantizer)) +
         cell(first, number(first)) + cell(final_value(amax), number(final_value(amax))) +
         cell(change, change ? fmt::format("{:+.1f} %", 100 * *change) : std::string(unknown)) + "<td>" +
         sparkline(amax, last_step) + "</td>" + cell(final_value(clipped), percent(final_value(clipped))) +
         "<td>" + sparkline(clipped, last_step) + "</td></tr>\n";
}

/// Returns a table with the range and the clipping of each quantizer over time.
std::string ranges_section(const RunRecord& record, double last_step) {
  const auto* last = record.last("epoch");
  if (last == nullptr || !last->contains("quantizers") || (*last)["quantizers"].empty()) return {};
  std::string out =
      "<h2>Quantizers</h2>\n<p>The range (the largest amax) of each quantizer after every epoch, and the "
      "share of activations outside of this range on some training samples. Click a heading to "
      "sort.</p>\n<div class=tools data-of=quantizers></div>\n<div class=sheet><table "
      "class=sortable><thead><tr>";
  out += head("name", 0, "Quantizer", "text") + head("first", 1, "First amax") + head("amax", 2, "amax") +
         head("change", 3, "Change") + "<th>amax over time</th>" + head("clipped", 5, "Clipped") +
         "<th>Clipped over time</th></tr></thead><tbody>\n";
  for (const auto& [name, value] : (*last)["quantizers"].items())
    out += quantizer_row(record, name, last_step);
  return out + "</tbody></table></div>\n";
}

using fq::detail::RunRecord;
using nlohmann::ordered_json;

constexpr std::size_t kMostClasses = 32, kMostPairs = 30;
constexpr double kStrong = 0.55;  // smallest share with white text

/// Number of samples of one class that were predicted as another class.
struct Confused {
  std::size_t label = 0, prediction = 0;
  std::int64_t count = 0, of = 0;
};

std::string class_name(const ordered_json& classes, std::size_t index) {
  const auto& names = classes["names"];
  return escaped(index < names.size() ? names[index].get<std::string>() : std::to_string(index));
}

// Returns all cells of the confusion matrix in row order: label by label, prediction by prediction.
std::vector<Confused> confusion_counts(const ordered_json& classes) {
  std::vector<Confused> out;
  for (std::size_t label = 0; label < classes["confusion"].size(); ++label) {
    const auto& row = classes["confusion"][label];
    std::int64_t of = 0;
    for (const auto& count : row) of += fq::detail::whole_value<std::int64_t>(count);
    for (std::size_t prediction = 0; prediction < row.size(); ++prediction)
      out.push_back({label, prediction, fq::detail::whole_value<std::int64_t>(row[prediction]), of});
  }
  return out;
}

std::string count_cell(const Confused& entry) {
  if (entry.count == 0) return "<td></td>";
  const double share = double(entry.count) / double(entry.of);
  return fmt::format("<td class=\"{}{}\" style=\"--v:{:.0f}%\">{}</td>",
                     entry.label == entry.prediction ? "right" : "wrong", share > kStrong ? " strong" : "",
                     // Small shares get at least 15 % colour, so that they differ from an empty cell.
                     15 + 85 * share, entry.count);
}

std::string matrix(const ordered_json& classes) {
  std::string out =
      "<div class=sheet><table class=matrix><thead><tr><th class=text>is, below; taken for</th>";
  for (std::size_t c = 0; c < classes["confusion"].size(); ++c)
    out += "<th scope=col>" + class_name(classes, c) + "</th>";
  out += "</tr></thead><tbody>\n";
  // Cells are in row order, so prediction 0 begins the row of the next label.
  for (const auto& entry : confusion_counts(classes)) {
    if (entry.prediction == 0)
      out += fmt::format("{}<tr><th scope=row class=text>{}</th>", entry.label == 0 ? "" : "</tr>\n",
                         class_name(classes, entry.label));
    out += count_cell(entry);
  }
  return out + "</tr>\n</tbody></table></div>\n";
}

std::string most_confused(const ordered_json& classes) {
  auto all = confusion_counts(classes);
  std::erase_if(all, [](const auto& entry) { return entry.label == entry.prediction || entry.count == 0; });
  std::ranges::stable_sort(all, std::greater(), &Confused::count);
  if (all.size() > kMostPairs) all.resize(kMostPairs);
  std::string out =
      "<div class=sheet><table><thead><tr><th class=text>Class</th><th class=text>taken for</th>"
      "<th>times</th><th>of</th></tr></thead><tbody>\n";
  for (const auto& entry : all)
    out += fmt::format("<tr><td class=text>{}</td><td class=text>{}</td><td>{}</td><td>{}</td></tr>\n",
                       class_name(classes, entry.label), class_name(classes, entry.prediction), entry.count,
                       entry.of);
  return out + "</tbody></table></div>\n";
}

std::string worst_samples(const ordered_json& classes, const std::map<std::int64_t, std::string>& shown) {
  if (classes["worst"].empty()) return {};
  std::string out =
      "<h3>Worst samples</h3>\n<p>Wrong predictions with the least probability of the right class. Below "
      "each sample: its row, its class, the predicted class and the probability.</p>\n<div class=samples>\n";
  for (const auto& sample : classes["worst"]) {
    const auto row = fq::detail::whole_value<std::int64_t>(sample["row"]);
    const auto found = shown.find(row);
    out += fmt::format("<figure>{}<figcaption>{}<br>{}, not {}<br>{:.2g} %</figcaption></figure>\n",
                       found == shown.end() ? std::string() : found->second, row,
                       class_name(classes, fq::detail::whole_value<std::size_t>(sample["label"])),
                       class_name(classes, fq::detail::whole_value<std::size_t>(sample["answer"])),
                       100 * fq::detail::number_field(sample, "probability"));
  }
  return out + "</div>\n";
}

/// Returns the confusion matrix, or for many classes the most confused pairs, and the worst samples.
std::string classes_section(const RunRecord& record, const std::map<std::int64_t, std::string>& shown) {
  const auto* classes = record.last("classes");
  if (classes == nullptr) return {};
  std::string out = fmt::format("<h2>Classes</h2>\n<p>{} {} samples, after step {}.</p>\n",
                                grouped(fq::detail::whole_value<std::int64_t>((*classes)["samples"])),
                                escaped((*classes)["of"].get<std::string>()),
                                fq::detail::whole_value<std::int64_t>((*classes)["step"]));
  out += (*classes)["confusion"].size() <= kMostClasses ? matrix(*classes) : most_confused(*classes);
  return out + worst_samples(*classes, shown);
}

using fq::detail::number_field;
using nlohmann::ordered_json;

// As for the calibration page, with pictures of samples as data URIs.
constexpr const char* kRunPolicy =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri "
    "'none'; "
    "form-action 'none'";
constexpr int kSecondsBetween = 10;

std::string spell_duration(double seconds) {
  if (seconds < 60) return fmt::format("{:.0f} s", seconds);
  const auto minutes = std::llround(seconds / 60);
  return minutes < 120 ? fmt::format("{} min", minutes)
                       : fmt::format("{} h {:02} min", minutes / 60, minutes % 60);
}

std::int64_t count_field(const ordered_json* line, const std::string& key) {
  return line == nullptr ? 0 : fq::detail::whole_or<std::int64_t>(*line, key, 0);
}

std::string state_tile(const RunPage& page) {
  const auto* end = page.record->last("end");
  const auto* epoch = page.record->last("epoch");
  const auto* step = page.record->last("step");
  // The length of a run is given in steps or in epochs (--steps, --epochs).
  const std::string unit = page.config.contains("steps") ? "step" : "epoch";
  const auto* reached = unit == "step" ? step : epoch;
  const std::string done =
      fmt::format("{} {} of {}", unit, count_field(reached, unit), count_field(&page.config, unit + "s"));
  if (page.seconds_left >= 0)
    return tile("Running", spell_duration(page.seconds_left) + " left",
                fmt::format("{}, step {}", done, count_field(step, "step")));
  return tile("State", escaped(end == nullptr ? "unfinished" : end->value("state", std::string("done"))),
              done);
}

std::string score_tile(const RunPage& page, const std::string& key, const std::string& label,
                       const char* unit) {
  const auto* epoch = page.record->last("epoch");
  if (epoch == nullptr || std::isnan(number_field(*epoch, key))) return {};
  const std::string validated = "val_" + key;
  const bool has_both = !std::isnan(number_field(*epoch, validated));
  const std::string note =
      has_both ? fmt::format("in validation; {}{} in training", number(number_field(*epoch, key)), unit)
               : std::string("in training");
  return tile(label, number(number_field(*epoch, has_both ? validated : key)) + unit, note);
}

std::string tiles(const RunPage& page) {
  std::string out = "<div class=tiles>\n" + state_tile(page) +
                    score_tile(page, "accuracy", "Accuracy", " %") + score_tile(page, "loss", "Loss", "");
  if (const auto* step = page.record->last("step"))
    out += tile("Pace", grouped(std::llround(number_field(*step, "images_per_second"))) + "/s",
                fmt::format("samples; {:.0f} % of the time waiting for data",
                            100 * number_field(*step, "loader_share")));
  return out + "</div>\n";
}

std::string facts(const ordered_json& config) {
  std::string out;
  for (const auto& [key, value] : config.items())
    if (value.is_string())
      out += fmt::format("{}{} <b>{}</b>", out.empty() ? "" : " · ", escaped(key),
                         escaped(value.get<std::string>()));
  return "<p>" + out + "</p>\n";
}

// All curves share one axis. NaN of a line without a step does not change the maximum.
double largest_step(const RunPage& page) {
  double out = 1;
  for (const auto& line : page.record->lines) out = std::max(out, number_field(line, "step"));
  return out;
}

std::string run_body(const RunPage& page) {
  const double last = largest_step(page);
  return fmt::format("<main>\n<h1>{}</h1>\n", escaped(page.title)) + facts(page.config) + tiles(page) +
         curves_section(*page.record, last) + phases_section(*page.record) +
         ranges_section(*page.record, last) + classes_section(*page.record, page.shown) +
         settings_section(page.config) + "</main>\n";
}

}  // namespace

std::string run_html(const RunPage& page) {
  std::string out =
      "<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n<meta name=generator "
      "content=fakequant>\n";
  out += fmt::format("<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n", kRunPolicy);
  // A page of a running process reloads itself.
  if (page.seconds_left >= 0) out += fmt::format("<meta http-equiv=refresh content={}>\n", kSecondsBetween);
  out += "<meta name=viewport content=\"width=device-width, initial-scale=1\">\n";
  out += fmt::format("<title>{}</title>\n<style>{}{}{}</style>\n</head>\n<body>\n", escaped(page.title),
                     page_style, samples_style, run_style);
  const std::string body = run_body(page);
  // The script only sorts and filters tables, which a page of a float run does not have.
  const bool sorts = body.find("class=tools") != std::string::npos;
  return out + body + (sorts ? fmt::format("<script>{}</script>\n", page_script) : std::string()) +
         "</body>\n</html>\n";
}

}  // namespace fq::html
