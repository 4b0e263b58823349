#include "fakequant/core/backend/cpu/elementwise/function_kernels.h"

#include <limits>

#include "fakequant/core/backend/cpu/vector/cache.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fakequant/core/backend/cpu/elementwise/function_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "fakequant/core/backend/cpu/vector/lanes-inl.h"
#include "fakequant/core/backend/cpu/vector/vector-inl.h"
//
#define FQ_FORMULAS_VECTOR
#include "fakequant/core/numerics/detail/function_formulas-inl.h"
#undef FQ_FORMULAS_VECTOR
#include "fakequant/core/backend/cpu/vector/half-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {
// Polynomials (function_formulas-inl.h) instead of libm: vectors have no libm, and the bits do not depend on
// the C library.
void GeluValues(const float* x, std::int64_t n, float* y) {
  visit_vectors<float>(0, n, [=](std::int64_t i, auto io) HWY_ATTR {
    cpu::fetch_ahead(x + i);
    cpu::fetch_ahead(y + i);
    io.store(gelu_value(io.load(x + i)), y + i);
  });
}
void GeluGradients(const float* dy, const float* x, std::int64_t n, float* dx) {
  visit_vectors<float>(0, n, [=](std::int64_t i, auto io) HWY_ATTR {
    cpu::fetch_ahead(dy + i);
    cpu::fetch_ahead(x + i);
    cpu::fetch_ahead(dx + i);
    io.store(mul_(io.load(dy + i), gelu_slope(io.load(x + i))), dx + i);
  });
}
void SiluValues(const float* x, std::int64_t n, float* y) {
  visit_vectors<float>(0, n, [=](std::int64_t i, auto io) HWY_ATTR {
    cpu::fetch_ahead(x + i);
    cpu::fetch_ahead(y + i);
    io.store(silu_value(io.load(x + i)), y + i);
  });
}
void SiluGradients(const float* dy, const float* x, std::int64_t n, float* dx) {
  visit_vectors<float>(0, n, [=](std::int64_t i, auto io) HWY_ATTR {
    io.store(mul_(io.load(dy + i), silu_slope(io.load(x + i))), dx + i);
  });
}

// Maxima do not depend on the order. Missing lanes are -infinity.
FQ_HD float LargestOf(const float* x, std::int64_t n) {
  const FloatTag d;
  const auto none = hn::Set(d, -std::numeric_limits<float>::infinity());
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  FloatVector v = none;
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) v = hn::Max(v, hn::LoadU(d, x + i));
  if (i < n) {
    const auto rest = hn::FirstN(d, static_cast<std::size_t>(n - i));
    v = hn::Max(v, hn::IfThenElse(rest, load_lanes<float>(x + i, n - i), none));
  }
  return hn::GetLane(hn::MaxOfLanes(d, v));
}

/// Adds terms in 16 columns for any vector width, and then adds the columns in order: every instruction set
/// has the same sum. Zeros after the last terms do not change it.
float SumOf(const float* x, std::int64_t n) {
  alignas(64) float columns[16] = {};
  if constexpr (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3) {
    FloatVector sums = hn::Zero(FloatTag());
    visit_vectors<float>(0, n, [&](std::int64_t i, auto io) HWY_ATTR { sums = add_(sums, io.load(x + i)); });
    hn::StoreU(sums, FloatTag(), columns);
  } else {
    std::int64_t i = 0;
    for (; i + 16 <= n; i += 16)
      for (int j = 0; j < 16; ++j) columns[j] += x[i + j];
    for (int j = 0; i + j < n; ++j) columns[j] += x[i + j];
  }
  float sum = 0;
  for (const float column : columns) sum += column;
  return sum;
}

cpu::RowPowers PowersOfRow(const float* x, std::int64_t n, float* y) {
  const float largest = LargestOf(x, n);
  // A row of -infinity: x - largest would be NaN. Its probabilities are 0.
  if (largest == -std::numeric_limits<float>::infinity()) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = 0;
    return {largest, 0};
  }
  const FloatVector most = hn::Set(FloatTag(), largest);
  // x - largest is at most 0, so the exponential cannot overflow.
  visit_vectors<float>(0, n, [=](std::int64_t i, auto io) HWY_ATTR {
    io.store(exp_below_zero(sub_(io.load(x + i), most)), y + i);
  });
  return {largest, SumOf(y, n)};
}
// Divides, as the scalar formula does: a product with 1 / sum would have other bits.
void DivideRow(float divisor, std::int64_t n, float* y) {
  const FloatVector by = hn::Set(FloatTag(), divisor);
  visit_vectors<float>(0, n,
                       [=](std::int64_t i, auto io) HWY_ATTR { io.store(div_(io.load(y + i), by), y + i); });
}

namespace {

std::int64_t ReadGeluEntries(const float* x, std::int64_t n, const float* entries, float* y) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> indices;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const FloatVector low = hn::Set(d, -10.0f), high = hn::Set(d, 10.0f);
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    cpu::fetch_ahead(y + i);
    const FloatVector v = hn::LoadU(d, x + i);
    // The bits of f16(x) are the index of the table.
    const FloatVector entry = hn::GatherIndex(d, entries, hn::PromoteTo(indices, narrow_f16(v)));
    const FloatVector near = select_(less_equal_(high, v), v, entry);
    hn::StoreU(select_(less_equal_(v, low), hn::Zero(d), near), d, y + i);
  }
  return i;
}

template <class To>
void narrow_all(const float* x, std::int64_t count, To* y) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(FloatTag()));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    cpu::fetch_ahead(x + i);
    cpu::fetch_ahead(y + i);
    store(load(x + i), y + i, false);
  }
  for (; i < count; ++i) y[i] = To(x[i]);
}

void ToBf16(const float* x, std::int64_t count, bfloat16* y) { narrow_all(x, count, y); }
void ToF16(const float* x, std::int64_t count, float16* y) { narrow_all(x, count, y); }

}  // namespace

}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fq {
HWY_EXPORT(GeluValues);
HWY_EXPORT(GeluGradients);
HWY_EXPORT(SiluValues);
HWY_EXPORT(SiluGradients);
HWY_EXPORT(PowersOfRow);
HWY_EXPORT(DivideRow);
HWY_EXPORT(ReadGeluEntries);
HWY_EXPORT(ToBf16);
HWY_EXPORT(ToF16);

namespace cpu {

void gelu_values(const float* x, std::int64_t n, float* y) { HWY_DYNAMIC_DISPATCH(GeluValues)(x, n, y); }
void gelu_gradients(const float* dy, const float* x, std::int64_t n, float* dx) {
  HWY_DYNAMIC_DISPATCH(GeluGradients)(dy, x, n, dx);
}
void silu_values(const float* x, std::int64_t n, float* y) { HWY_DYNAMIC_DISPATCH(SiluValues)(x, n, y); }
void silu_gradients(const float* dy, const float* x, std::int64_t n, float* dx) {
  HWY_DYNAMIC_DISPATCH(SiluGradients)(dy, x, n, dx);
}
RowPowers powers_of_row(const float* x, std::int64_t n, float* y) {
  return HWY_DYNAMIC_DISPATCH(PowersOfRow)(x, n, y);
}
void divide_row(float divisor, std::int64_t n, float* y) { HWY_DYNAMIC_DISPATCH(DivideRow)(divisor, n, y); }

std::int64_t read_gelu_entries(const float* x, std::int64_t n, const float* entries, float* y) {
  return HWY_DYNAMIC_DISPATCH(ReadGeluEntries)(x, n, entries, y);
}

void narrow_floats(const float* x, std::int64_t count, bfloat16* y) {
  HWY_DYNAMIC_DISPATCH(ToBf16)(x, count, y);
}
void narrow_floats(const float* x, std::int64_t count, float16* y) {
  HWY_DYNAMIC_DISPATCH(ToF16)(x, count, y);
}

}  // namespace cpu

}  // namespace fq
#endif
