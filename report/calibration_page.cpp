#include "fakequant/report/calibration_page.h"

#include <algorithm>

#include <fmt/format.h>

#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/report/detail/calibration_sections.h"
#include "fakequant/report/detail/histogram_plot.h"
#include "fakequant/report/detail/html.h"
#include "fakequant/report/detail/page_assets.h"

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
