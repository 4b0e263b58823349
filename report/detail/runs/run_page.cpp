#include "fakequant/report/detail/runs/run_page.h"

#include <cmath>

#include <fmt/format.h>

#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/report/detail/page_script.h"
#include "fakequant/report/detail/page_style.h"
#include "fakequant/report/detail/parts.h"
#include "fakequant/report/detail/picture.h"
#include "fakequant/report/detail/runs/run_style.h"
#include "fakequant/report/detail/runs/sections.h"
#include "fakequant/report/detail/text.h"

namespace fq::html {
namespace {

using fq::detail::number_at;
using nlohmann::ordered_json;

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

std::int64_t count_in(const ordered_json* line, const std::string& key) {
  return line == nullptr ? 0 : fq::detail::whole_or<std::int64_t>(*line, key, 0);
}

std::string state_tile(const RunPage& page) {
  const auto* end = page.record->last("end");
  const auto* epoch = page.record->last("epoch");
  const auto* step = page.record->last("step");
  const std::string unit = page.config.contains("steps") ? "step" : "epoch";
  const auto* reached = unit == "step" ? step : epoch;
  const std::string done =
      fmt::format("{} {} of {}", unit, count_in(reached, unit), count_in(&page.config, unit + "s"));
  if (page.seconds_left >= 0)
    return tile("Running", spell_duration(page.seconds_left) + " left",
                fmt::format("{}, step {}", done, count_in(step, "step")));
  return tile("State", escaped(end == nullptr ? "unfinished" : end->value("state", std::string("done"))),
              done);
}

std::string score_tile(const RunPage& page, const std::string& key, const std::string& label,
                       const char* unit) {
  const auto* epoch = page.record->last("epoch");
  if (epoch == nullptr || std::isnan(number_at(*epoch, key))) return {};
  const std::string validated = "val_" + key;
  const bool has_both = !std::isnan(number_at(*epoch, validated));
  const std::string note =
      has_both ? fmt::format("in validation; {}{} in training", number(number_at(*epoch, key)), unit)
               : std::string("in training");
  return tile(label, number(number_at(*epoch, has_both ? validated : key)) + unit, note);
}

std::string tiles(const RunPage& page) {
  std::string out = "<div class=tiles>\n" + state_tile(page) +
                    score_tile(page, "accuracy", "Accuracy", " %") + score_tile(page, "loss", "Loss", "");
  if (const auto* step = page.record->last("step"))
    out += tile("Pace", grouped(std::llround(number_at(*step, "images_per_second"))) + "/s",
                fmt::format("samples; {:.0f} % of the time waiting for data",
                            100 * number_at(*step, "loader_share")));
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

double last_step_of(const RunPage& page) {
  double out = 1;
  for (const auto& line : page.record->lines) out = std::max(out, number_at(line, "step"));
  return out;
}

std::string run_body(const RunPage& page) {
  const double last = last_step_of(page);
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
  if (page.seconds_left >= 0) out += fmt::format("<meta http-equiv=refresh content={}>\n", kSecondsBetween);
  out += "<meta name=viewport content=\"width=device-width, initial-scale=1\">\n";
  out += fmt::format("<title>{}</title>\n<style>{}{}{}</style>\n</head>\n<body>\n", escaped(page.title),
                     page_style, samples_style, run_style);
  const std::string body = run_body(page);
  const bool sorts = body.find("class=tools") != std::string::npos;
  return out + body + (sorts ? fmt::format("<script>{}</script>\n", page_script) : std::string()) +
         "</body>\n</html>\n";
}

}  // namespace fq::html
