#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "fakequant/core/detail/check.h"
#include "fakequant/reference/observers/observers.h"

namespace fq::torch_ref {
namespace {

// Histogram: counts in bins of equal width between `lower` and `upper`.
struct Bins {
  const std::vector<float>& counts;
  float lower, upper;
};

// Constants of torch.ao's HistogramObserver: 2^8 destination bins, and the step of the parameter search.
constexpr int codes = 256;
constexpr double kStep = 1e-5;

// torch.floor_divide for floats: the remainder is subtracted first, so that the quotient of multiples is
// exact.
float divided_down(float a, float b) {
  const float remainder = std::fmod(a, b);
  float quotient = (a - remainder) / b;
  if (remainder != 0 && (b < 0) != (remainder < 0)) quotient -= 1;
  const float down = std::floor(quotient);
  return quotient - down > 0.5f ? down + 1 : down;
}

// The integral of x^2 from begin to end.
float cubes(float begin, float end) { return (end * end * end - begin * begin * begin) / 3; }

// torch.cumsum sums in double and rounds each element to f32.
std::vector<float> running_sums(const std::vector<float>& counts) {
  std::vector<float> out;
  double sum = 0;
  for (const float count : counts) out.push_back(static_cast<float>(sum += static_cast<double>(count)));
  return out;
}

// Returns the squared error of 256 codes that cover the bins `first` to `last` (_compute_quantization_error
// in torch.ao). The values of a bin count as uniformly distributed.
double quantization_error(const Bins& bins, int first, int last) {
  const auto count = static_cast<int>(bins.counts.size());
  const double exact_width = (static_cast<double>(bins.upper) - static_cast<double>(bins.lower)) / count;
  const double exact_code = exact_width * (last - first + 1) / codes;
  if (exact_code == 0) return 0;
  const auto width = static_cast<float>(exact_width), code = static_cast<float>(exact_code);
  const auto half = static_cast<float>(exact_code / 2);
  const float within = cubes(-half, half);
  const auto distance_code = [code](float distance) {
    return std::clamp(divided_down(distance, code), 0.0f, static_cast<float>(codes - 1));
  };
  double error = 0;
  for (int i = 0; i < count; ++i) {
    const float begin = static_cast<float>(i - first) * width, end = begin + width;
    const float begin_code = distance_code(begin), end_code = distance_code(end);
    const float density = bins.counts[static_cast<std::size_t>(i)] / width;
    // A bin may cross several codes: the part in the first code, whole codes between, the part in the last
    // code.
    float norm = density * cubes(begin - (begin_code + 0.5f) * code, half);
    norm += (end_code - begin_code - 1) * (density * within);
    norm += density * cubes(-half, end - (end_code * code + half));
    error += static_cast<double>(norm);
  }
  return error;
}

// Returns the first and last bin of the best range (_non_linear_param_search in torch.ao). Each step drops
// the mass kStep from the side that loses more bins by it, until the error grows. At most 1 / kStep steps.
std::pair<int, int> best_bins(const Bins& bins) {
  const std::vector<float> sums = running_sums(bins.counts);
  const double total = std::accumulate(bins.counts.begin(), bins.counts.end(), 0.0);
  const auto mass = [total](double share) { return static_cast<float>(share * total); };
  const auto sum = [&](int bin) { return sums[static_cast<std::size_t>(bin)]; };
  double alpha = 0, beta = 1, least = std::numeric_limits<double>::infinity();
  int first = 0, last = static_cast<int>(bins.counts.size()) - 1;
  while (alpha < beta) {
    const double next_alpha = alpha + kStep, next_beta = beta - kStep;
    int left = first, right = last;
    while (left < last && sum(left) < mass(next_alpha)) ++left;
    while (right > first && sum(right) > mass(next_beta)) --right;
    const bool move_first = left - first > last - right;
    (move_first ? alpha : beta) = move_first ? next_alpha : next_beta;
    const int next_first = move_first ? left : first, next_last = move_first ? last : right;
    if (next_first == first && next_last == last) continue;
    const double error = quantization_error(bins, next_first, next_last);
    if (error > least) break;
    least = error;
    first = next_first;
    last = next_last;
  }
  return {first, last};
}

constexpr const char* kHistogramObserver = "histogram_observer";
// Parts of a bin that are moved as a whole when the range grows: upsample_rate in torch.ao.
constexpr int pieces = 16;

// torch.histc. Equal limits are widened by 1 on each side.
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

// torch.linspace computes points from the nearer end, so that both ends are exact.
struct Linspace {
  float start, end;
  int points;
  float operator()(int i) const {
    const float step = (end - start) / static_cast<float>(points - 1);
    return i < points / 2 ? start + step * static_cast<float>(i)
                          : end - step * static_cast<float>(points - 1 - i);
  }
};

/// Redistributes `counts` over `from` to the same number of bins over `to`, which contains `from`.
std::vector<float> spread(const std::vector<float>& counts, std::pair<float, float> from,
                          std::pair<float, float> to) {
  const auto bins = static_cast<int>(counts.size());
  // All values were equal: their whole count goes to the bin that contains the value.
  if (from.first == from.second) {
    std::vector<float> out = counted({from.first}, bins, to.first, to.second);
    const float all = std::accumulate(counts.begin(), counts.end(), 0.0f);
    for (float& count : out) count *= all;
    return out;
  }
  std::vector<float> edges, out(counts.size());
  for (int i = 0; i <= bins; ++i) edges.push_back(Linspace{to.first, to.second, bins + 1}(i));
  const Linspace begins{from.first, from.second, bins * pieces + 1};
  // Each part belongs to the bin that contains its middle.
  const float half = 0.5f * ((from.second - from.first) / static_cast<float>(bins * pieces));
  for (int i = 0; i < bins * pieces; ++i) {
    const auto above = std::ranges::upper_bound(edges, begins(i) + half) - edges.begin();
    const auto bin = std::clamp<std::int64_t>(above - 1, 0, bins - 1);
    out[static_cast<std::size_t>(bin)] += counts[static_cast<std::size_t>(i / pieces)] / pieces;
  }
  return out;
}

// Leaves infinities out, which would make the range infinite. NaN is an error.
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
  FQ_CHECK(is_floating(x.dtype()), kHistogramObserver, "the input is {}: use a float type", name(x.dtype()));
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
  // The histogram is redistributed only if the range grew: redistribution loses precision.
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
