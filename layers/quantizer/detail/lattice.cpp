#include "fakequant/layers/quantizer/detail/lattice.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fakequant/layers/quantizer/detail/block_ranges.h"
#include "fakequant/layers/quantizer/detail/weight_scheme.h"

namespace fq::detail {
namespace {

/// Largest relative error of k = x / step: bfloat16 rounds x and the step by up to 2^-8 each.
constexpr float kTolerance = 0x1.4p-7f;

// The comparison is negated so that a NaN position fails.
bool fits_lattice(std::span<const float> x, float step, float lower, float upper) {
  for (const float v : x) {
    const float position = v / step, k = std::rint(position);
    if (!(std::abs(position - k) <= kTolerance * std::abs(k)) || k < lower || k > upper) return false;
  }
  return true;
}

// Squared error of the codes of `code_step`, multiplied by `step`.
double error_of_codes(std::span<const float> x, float step, float code_step) {
  double sum = 0;
  for (const float v : x) {
    const double error = double(v) - double(std::rint(v / code_step)) * double(step);
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

// True if a scale of a block may be any float.
bool has_free_scales(const TensorQuantizer& q) {
  const QuantDescriptor& d = q.descriptor();
  return q.params().arithmetic == Arithmetic::deployed && !q.params().pow2 && d.format().is_integer() &&
         !d.block_sizes().empty() && !d.block_sizes().scale_bits && !d.scale_amax() &&
         !d.has_dynamic_blocks();
}

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
  // The largest magnitude has some code k. Codes of upper / 2 and less can be doubled with half the step, so
  // larger k cover them.
  for (float k = std::floor(upper / 2) + 1; k <= upper; ++k)
    if (fits_lattice(x, amax / k, lower, upper)) best.add(amax / k);
  // Signed codes that are not narrow have one more negative code.
  if (extreme < 0 && -lower > upper && fits_lattice(x, amax / -lower, lower, upper)) best.add(amax / -lower);
  return best.step;
}

Tensor ranges_with_lattices(const TensorQuantizer& quantizer, const Tensor& weight, const Tensor& amax) {
  if (!has_free_scales(quantizer)) return amax;
  const auto view = BlockView::of(quantizer.descriptor(), weight.shape());
  const Tensor x = view.apply(weight.to(Device::cpu()).to(DType::f32)).to(Layout::row_major);
  // Other views than [blocks, length] keep their ranges.
  if (x.rank() != 2 || view.kept().values() != std::vector<int>{0} || x.dim(0) != amax.numel()) return amax;
  Tensor out = amax.to(Device::cpu()).to(DType::f32).clone();
  auto* ranges = out.mutable_data<float>();
  const WeightScheme& scheme = *quantizer.params().weight_scheme;
  const float bound = quantizer.descriptor().format().bound(),
              lower = quantizer.descriptor().format().lower();
  const auto length = static_cast<std::size_t>(x.dim(1));
// Each block writes its own range: the result does not depend on threads.
#pragma omp parallel for schedule(static)
  for (std::int64_t b = 0; b < x.dim(0); ++b) {
    const std::span<const float> block(x.data<float>() + b * x.dim(1), length);
    const float own = lattice_step(block, lower, bound);
    const auto error = [&](float range) {
      return multiples_error(block, scheme.stored_scale(range / bound), lower, bound);
    };
    if (own > 0 && lattice_gain * error(own * bound) < error(ranges[b])) ranges[b] = own * bound;
  }
  return out.to(amax.dtype());
}

}  // namespace fq::detail
