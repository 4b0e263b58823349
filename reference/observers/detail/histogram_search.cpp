#include "fakequant/reference/observers/detail/histogram_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace fq::torch_ref {
namespace {

constexpr int codes = 256;
constexpr double kStep = 1e-5;

/// torch's division that rounds down: by the remainder, so that the quotient is exact.
float divided_down(float a, float b) {
  const float remainder = std::fmod(a, b);
  float quotient = (a - remainder) / b;
  if (remainder != 0 && (b < 0) != (remainder < 0)) quotient -= 1;
  const float down = std::floor(quotient);
  return quotient - down > 0.5f ? down + 1 : down;
}

float cubes(float begin, float end) { return (end * end * end - begin * begin * begin) / 3; }

std::vector<float> running_sums(const std::vector<float>& counts) {
  std::vector<float> out;
  double sum = 0;
  for (const float count : counts) out.push_back(static_cast<float>(sum += static_cast<double>(count)));
  return out;
}

}  // namespace

double quantization_error(const Bins& bins, int first, int last) {
  const auto count = static_cast<int>(bins.counts.size());
  const double exact_width = (static_cast<double>(bins.upper) - static_cast<double>(bins.lower)) / count;
  const double exact_code = exact_width * (last - first + 1) / codes;
  if (exact_code == 0) return 0;
  const auto width = static_cast<float>(exact_width), code = static_cast<float>(exact_code);
  const auto half = static_cast<float>(exact_code / 2);
  const float within = cubes(-half, half);
  const auto code_of = [code](float distance) {
    return std::clamp(divided_down(distance, code), 0.0f, static_cast<float>(codes - 1));
  };
  double error = 0;
  for (int i = 0; i < count; ++i) {
    const float begin = static_cast<float>(i - first) * width, end = begin + width;
    const float of_begin = code_of(begin), of_end = code_of(end);
    const float density = bins.counts[static_cast<std::size_t>(i)] / width;
    float norm = density * cubes(begin - (of_begin + 0.5f) * code, half);
    norm += (of_end - of_begin - 1) * (density * within);
    norm += density * cubes(-half, end - (of_end * code + half));
    error += static_cast<double>(norm);
  }
  return error;
}

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

}  // namespace fq::torch_ref
