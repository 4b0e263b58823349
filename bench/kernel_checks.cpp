#include "fakequant/bench/kernel_checks.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fakequant/bench/arrays.h"
#include "fakequant/bench/kernels.h"
#include "fakequant/core/blocks/detail/channels.h"
#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/reference/detail/block_scales.h"

namespace fq::bench {
namespace {

/// Returns the index of the range of element i. Elements of a run share a range, except with ranges per last
/// axis.
std::int64_t range_index(const Forward& k, std::int64_t i) {
  const std::int64_t ranges = k.amax.numel();
  return k.amax.rank() == 1 ? i % ranges : i / (k.x.numel() / ranges);
}

std::string mask_difference(const Forward& k) {
  Tensor mask = Tensor::zeros(k.mask.shape(), DType::u1);
  const auto *x = k.x.data<float>(), *amax = k.amax.data<float>();
  auto* bits = static_cast<std::uint8_t*>(mask.mutable_raw());
  for (std::int64_t i = 0; i < k.x.numel(); ++i)
    cpu::set_bit(bits, i, scalar::modelopt_mask(x[i], amax[range_index(k, i)]));
  return first_mask_difference(k.mask, mask);
}

std::string compare(const Forward& k, const Tensor& y) {
  const auto difference = first_difference("y", k.y, y);
  return difference.empty() ? mask_difference(k) : difference;
}

/// y[i] = f(x[i], amax of i).
template <class F>
std::string compare_elements(const Forward& k, F&& f) {
  Tensor y = Tensor::empty(k.y.shape());
  const auto *x = k.x.data<float>(), *amax = k.amax.data<float>();
  auto* out = y.mutable_data<float>();
  for (std::int64_t i = 0; i < k.x.numel(); ++i) out[i] = f(x[i], amax[range_index(k, i)]);
  return compare(k, y);
}

/// f(x, y, count, largest magnitude) fills a block.
template <class F>
std::string compare_blocks(const Forward& k, std::int64_t length, F&& f) {
  Tensor y = Tensor::empty(k.y.shape());
  const auto* x = k.x.data<float>();
  auto* out = y.mutable_data<float>();
  for (std::int64_t i = 0; i < k.x.numel(); i += length)
    f(x + i, out + i, detail::largest_number(x + i, length));
  return compare(k, y);
}

std::string check_integer(const Forward& k, float lower, float upper) {
  return compare_elements(k, [=](float x, float amax) {
    const float scale = scalar::modelopt_scale(amax, upper, true);
    return scalar::modelopt_fake_quant(x, scale, scalar::modelopt_divisor(amax, scale, true), lower, upper);
  });
}

}  // namespace

std::string check_int8(const Forward& k) { return check_integer(k, -127, 127); }
std::string check_int4(const Forward& k) { return check_integer(k, -8, 7); }

std::string check_e4m3(const Forward& k) {
  return compare_elements(k, [](float x, float amax) {
    const float scale = scalar::modelopt_e4m3_scale(amax);
    return scalar::modelopt_scaled_e4m3(x, scale, 1.0f / scale);
  });
}

std::string check_nvfp4(const Forward& k) {
  const float global = k.amax.data<float>()[0] / 2688.0f;
  return compare_blocks(k, 16, [global](const float* x, float* y, float largest) {
    const float scale = scalar::nvfp4_scale(largest, global);
    for (int i = 0; i < 16; ++i) y[i] = scalar::fp4_fake_quant(x[i], scale);
  });
}

std::string check_mxfp8(const Forward& k) {
  return compare_blocks(k, 32, [](const float* x, float* y, float largest) {
    const auto s = detail::e8m0_scale(std::min(largest, std::numeric_limits<float>::max()), 448);
    for (int i = 0; i < 32; ++i) {
      const float magnitude = scalar::round_e4m3(std::fabs(x[i]) * s.scale) * s.unscale;
      y[i] = x[i] < 0 ? -magnitude : magnitude;
    }
  });
}

}  // namespace fq::bench
