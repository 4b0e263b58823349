#include "fakequant/train/metrics.h"

#include <algorithm>
#include <vector>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/train/detail/metrics/metrics.h"

namespace fq {
namespace {

struct Known {
  std::string name;
  bool higher;
  std::unique_ptr<Metric> (*make)();
};

const std::vector<Known>& known_metrics() {
  static const std::vector<Known> all{{"accuracy", true, &detail::make_accuracy},
                                      {"f1", true, &detail::make_f1},
                                      {"recall", true, &detail::make_recall},
                                      {"iou", true, &detail::make_iou},
                                      {"auc", true, &detail::make_auc},
                                      {"bpc", false, [] { return detail::make_bits_per_character({}); }},
                                      {"perplexity", false, &detail::make_perplexity},
                                      {"mae", false, &detail::make_mae},
                                      {"rmse", false, &detail::make_rmse},
                                      {"r2", true, &detail::make_r2}};
  return all;
}

/// Returns the number after a prefix, for example 5 of "top5" after "top"; -1 for other names.
std::int64_t number_suffix(const std::string& name, const std::string& word) {
  // Six digits at most: std::stoll cannot overflow.
  if (!name.starts_with(word) || name.size() == word.size() || name.size() > word.size() + 6) return -1;
  const std::string digits = name.substr(word.size());
  return std::ranges::all_of(digits, [](char c) { return '0' <= c && c <= '9'; }) ? std::stoll(digits) : -1;
}

}  // namespace

std::unique_ptr<Metric> make_metric(const std::string& name, const MetricOptions& options) {
  if (name == "bpc") return detail::make_bits_per_character(options);
  if (const auto k = number_suffix(name, "top"); k > 0) return detail::make_top_k(k);
  // "ler" has blank 0, "ler36" blank 36.
  if (const auto blank = name == "ler" ? 0 : number_suffix(name, "ler"); blank >= 0)
    return detail::make_label_error_rate(blank);
  if (const auto blank = name == "exact" ? 0 : number_suffix(name, "exact"); blank >= 0)
    return detail::make_exact_sequences(blank);
  const auto found = std::ranges::find(known_metrics(), name, &Known::name);
  if (found != known_metrics().end()) return found->make();
  std::vector<std::string> names{"top5", "ler", "exact"};
  for (const auto& entry : known_metrics()) names.push_back(entry.name);
  throw ArgumentError(fmt::format("[metric] there is no metric '{}'{}: use {}", name,
                                  detail::did_you_mean(name, names), detail::alternatives(names)));
}

bool higher_is_better(const std::string& name) {
  const auto found = std::ranges::find(known_metrics(), name, &Known::name);
  // topK and exact are shares of correct samples; ler is an error rate.
  return found == known_metrics().end() ? !name.starts_with("ler") : found->higher;
}

}  // namespace fq
