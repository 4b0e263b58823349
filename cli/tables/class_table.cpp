#include "fakequant/cli/tables/class_table.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fakequant/cli/tables/output.h"
#include "fakequant/core/detail/text.h"

namespace fq::cli {
namespace {

constexpr std::size_t kMostShown = 12;

}  // namespace

std::string class_label(const std::vector<std::string>& names, std::int64_t index) {
  const auto at = static_cast<std::size_t>(index);
  return at < names.size() ? names[at] : std::to_string(index);
}

std::string names_text(const std::vector<std::string>& names) {
  std::vector<std::string> lines = names;
  lines.resize(std::min(names.size(), kMostShown));
  std::ranges::transform(lines, lines.begin(), fq::detail::one_line_name);
  return fmt::format("{}{}", fmt::join(lines, ", "), kMostShown < names.size() ? ", .." : "");
}

std::string classes_text(std::int64_t count, const std::vector<std::string>& names) {
  return fmt::format("{} class{}{}{}", count, count == 1 ? "" : "es", names.empty() ? "" : ": ",
                     names_text(names));
}

namespace {

using nlohmann::ordered_json;

// Data sets with a thousand classes would fill the screen. --json has all classes.
constexpr std::size_t kMostRows = 20;

// Requires a class with samples.
double share(const ClassScore& score) { return double(score.correct) / double(score.count); }

/// Returns the classes with samples: all in order, or the worst of many.
std::vector<std::size_t> shown_classes(const std::vector<ClassScore>& scores) {
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // A class without samples has no accuracy.
  std::erase_if(order, [&](auto c) { return scores[c].count == 0; });
  if (order.size() <= kMostRows) return order;
  std::ranges::stable_sort(order, {}, [&](auto c) { return share(scores[c]); });
  order.resize(kMostRows);
  return order;
}

/// Returns the number of characters of a UTF-8 text.
std::size_t columns(const std::string& text) {
  return std::size_t(std::ranges::count_if(text, [](unsigned char c) { return (c & 0xC0) != 0x80; }));
}

std::string mistaken_label(const std::vector<std::string>& names, std::int64_t index) {
  return index < 0 ? "NaN" : class_label(names, index);
}

std::string mostly_mistaken(const ClassScore& score, const std::vector<std::string>& names) {
  if (score.mistaken.empty()) return {};
  const auto most =
      std::ranges::max_element(score.mistaken, {}, [](const auto& entry) { return entry.second; });
  return fmt::format("  {} as {}", most->second, mistaken_label(names, most->first));
}

}  // namespace

void ClassScores::add(const Tensor& predicted, const Tensor& labels) {
  const auto *prediction = predicted.data<std::int64_t>(), *label = labels.data<std::int64_t>();
  for (std::int64_t i = 0; i < labels.numel(); ++i) {
    ClassScore& score = classes_.at(static_cast<std::size_t>(label[i]));
    ++score.count;
    // Key -1 of `mistaken` is a row with NaN.
    ++(prediction[i] == label[i] ? score.correct : score.mistaken[prediction[i]]);
  }
}

// Returns the number of predictions of each class, right and wrong, without rows of NaN.
std::vector<std::int64_t> ClassScores::answered() const {
  std::vector<std::int64_t> counts(classes_.size(), 0);
  for (std::size_t c = 0; c < classes_.size(); ++c) {
    counts[c] += classes_[c].correct;
    for (const auto& [other, count] : classes_[c].mistaken)
      if (other >= 0) counts[static_cast<std::size_t>(other)] += count;
  }
  return counts;
}

std::string class_table(const ClassScores& scores, const std::vector<std::string>& names) {
  std::size_t width = 5;
  const auto shown = shown_classes(scores.classes());
  for (const auto c : shown) width = std::max(width, columns(class_label(names, std::int64_t(c))));
  std::string table =
      fmt::format("{:<{}}  {:>9}  {:>7}  most often taken for", "class", width, "accuracy", "samples");
  for (const auto c : shown) {
    const ClassScore& score = scores.classes()[c];
    table += fmt::format("\n{:<{}}  {:>7.2f} %  {:>7}{}", class_label(names, std::int64_t(c)), width,
                         100 * share(score), score.count, mostly_mistaken(score, names));
  }
  if (shown.size() == kMostRows && scores.classes().size() > kMostRows)
    table += fmt::format("\nthe {} worst of {} classes: --json has all", kMostRows, scores.classes().size());
  return table;
}

ordered_json class_json(const ClassScores& scores, const std::vector<std::string>& names) {
  ordered_json list = ordered_json::array();
  const auto answered = scores.answered();
  for (std::size_t c = 0; c < scores.classes().size(); ++c) {
    const ClassScore& score = scores.classes()[c];
    ordered_json mistaken = ordered_json::array();
    for (const auto& [other, count] : score.mistaken)
      mistaken.push_back({{"class", other}, {"count", count}});
    list.push_back({{"class", c},
                    {"name", c < names.size() ? ordered_json(names[c]) : nullptr},
                    {"count", score.count},
                    {"correct", score.correct},
                    // F1 = 2 TP / (samples of the class + predictions of the class). It is undefined for a
                    // class with neither.
                    {"f1", score.count + answered[c] == 0 ? ordered_json(nullptr)
                                                          : ordered_json(2.0 * double(score.correct) /
                                                                         double(score.count + answered[c]))},
                    {"mistaken", mistaken}});
  }
  return list;
}

}  // namespace fq::cli
