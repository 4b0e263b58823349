#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "fakequant/core/detail/check.h"
#include "fakequant/reference/observers/detail/histogram_search.h"
#include "fakequant/reference/observers/observers.h"

namespace fq::torch_ref {
namespace {

constexpr const char* kHistogramObserver = "histogram_observer";
constexpr int pieces = 16;

/// torch.histc: `lower` and `upper` equal make a range of 2 about them.
std::vector<float> counted(const std::vector<float>& values, int bins, float lower, float upper) {
  std::vector<float> counts(static_cast<std::size_t>(bins));
  if (lower == upper) {
    lower -= 1;
    upper += 1;
  }
  for (const float v : values) {
    if (!(v >= lower && v <= upper)) continue;
    const float place =
        (v - lower) * static_cast<float>(bins) / (upper - lower);  // NaN where that is beyond f32
    const int bin = place > 0 ? static_cast<int>(std::min(place, static_cast<float>(bins - 1))) : 0;
    counts[static_cast<std::size_t>(bin)] += 1;
  }
  return counts;
}

/// torch.linspace: from each end to the middle.
struct Linspace {
  float start, end;
  int points;
  float operator()(int i) const {
    const float step = (end - start) / static_cast<float>(points - 1);
    return i < points / 2 ? start + step * static_cast<float>(i)
                          : end - step * static_cast<float>(points - 1 - i);
  }
};

/// `counts` between `from` on as many bins between `to`, which holds it.
std::vector<float> spread(const std::vector<float>& counts, std::pair<float, float> from,
                          std::pair<float, float> to) {
  const auto bins = static_cast<int>(counts.size());
  if (from.first == from.second) {
    std::vector<float> out = counted({from.first}, bins, to.first, to.second);
    const float all = std::accumulate(counts.begin(), counts.end(), 0.0f);
    for (float& count : out) count *= all;
    return out;
  }
  std::vector<float> edges, out(counts.size());
  for (int i = 0; i <= bins; ++i) edges.push_back(Linspace{to.first, to.second, bins + 1}(i));
  const Linspace begins{from.first, from.second, bins * pieces + 1};
  const float half = 0.5f * ((from.second - from.first) / static_cast<float>(bins * pieces));
  for (int i = 0; i < bins * pieces; ++i) {
    const auto above = std::ranges::upper_bound(edges, begins(i) + half) - edges.begin();
    const auto bin = std::clamp<std::int64_t>(above - 1, 0, bins - 1);
    out[static_cast<std::size_t>(bin)] += counts[static_cast<std::size_t>(i / pieces)] / pieces;
  }
  return out;
}

std::vector<float> finite_values(const Tensor& x) {
  auto values = x.to(DType::f32).to_vector<float>();
  if (std::ranges::any_of(values, [](float v) { return std::isnan(v); }))
    throw NumericError("[histogram_observer] a NaN was observed: leave such batches out");
  std::erase_if(values, [](float v) { return std::isinf(v); });
  return values;
}

}  // namespace

HistogramObserver::HistogramObserver(ObserverOptions options, int bins)
    : rule_(check_per_tensor(options, kHistogramObserver)), bins_(bins) {
  FQ_CHECK(bins >= 2, kHistogramObserver, "{} bins: use 2 or more", bins);
}

void HistogramObserver::observe(const Tensor& x) {
  FQ_CHECK(is_floating(x.dtype()), kHistogramObserver, "the input is {}: give a float type", name(x.dtype()));
  const std::vector<float> values = finite_values(x);
  if (values.empty()) return;
  const auto [least, most] = std::ranges::minmax(values);
  if (histogram_.empty()) {
    min_ = least;
    max_ = most;
    histogram_ = counted(values, bins_, min_, max_);
    return;
  }
  const float lower = std::min(min_, least), upper = std::max(max_, most);
  const std::vector<float> update = counted(values, bins_, lower, upper);
  if (lower != min_ || upper != max_) histogram_ = spread(histogram_, {min_, max_}, {lower, upper});
  for (std::size_t i = 0; i < update.size(); ++i) histogram_[i] += update[i];
  min_ = lower;
  max_ = upper;
}

QParams HistogramObserver::calculate_qparams() const {
  FQ_CHECK(!histogram_.empty(), kHistogramObserver, "nothing was observed: call observe() first");
  const auto [first, last] = best_bins({histogram_, min_, max_});
  const float width = (max_ - min_) / static_cast<float>(bins_);
  return rule_.choose(Tensor::from({min_ + width * static_cast<float>(first)}),
                      Tensor::from({min_ + width * static_cast<float>(last + 1)}));
}

}  // namespace fq::torch_ref
