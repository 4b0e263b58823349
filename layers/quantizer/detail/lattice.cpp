#include "fakequant/layers/quantizer/detail/lattice.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fq::detail {
namespace {

/// Largest relative error of k = x / step: bfloat16 rounds x and the step by up to 2^-8 each.
constexpr float kTolerance = 0x1.4p-7f;

bool on_lattice(std::span<const float> x, float step, float lower, float upper) {
  for (const float v : x) {
    const float position = v / step, k = std::rint(position);
    if (!(std::abs(position - k) <= kTolerance * std::abs(k)) || k < lower || k > upper) return false;
  }
  return true;
}

double error_of_codes(std::span<const float> x, float step, float of_codes) {
  double sum = 0;
  for (const float v : x) {
    const double error = double(v) - double(std::rint(v / of_codes)) * double(step);
    sum += error * error;
  }
  return sum;
}

/// The best step so far.
struct BestStep {
  std::span<const float> x;
  float step = 0;
  double error = std::numeric_limits<double>::infinity();

  /// Tries a step, and the step with the least squared error for the same multiples.
  void add(float first) {
    double products = 0, squares = 0;
    for (const float v : x) {
      const double k = std::rint(v / first);
      products += double(v) * k;
      squares += k * k;
    }
    for (const float each : {first, static_cast<float>(products / squares)})
      if (const double own = error_of_codes(x, each, first); own < error) {
        step = each;
        error = own;
      }
  }
};

}  // namespace

double multiples_error(std::span<const float> x, float step, float lower, float upper) {
  double sum = 0;
  for (const float v : x) {
    const float k = std::clamp(std::rint(v / step), lower, upper);
    const double error = double(v) - double(k) * double(step);
    sum += error * error;
  }
  return sum;
}

float lattice_step(std::span<const float> x, float lower, float upper) {
  float extreme = 0;
  for (const float v : x)
    if (std::abs(v) > std::abs(extreme)) extreme = v;
  const float amax = std::abs(extreme);
  if (amax == 0 || !std::isfinite(amax)) return 0;
  BestStep best{x};
  for (float k = std::floor(upper / 2) + 1; k <= upper; ++k)
    if (on_lattice(x, amax / k, lower, upper)) best.add(amax / k);
  if (extreme < 0 && -lower > upper && on_lattice(x, amax / -lower, lower, upper)) best.add(amax / -lower);
  return best.step;
}

}  // namespace fq::detail
