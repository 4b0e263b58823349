#include "fakequant/core/backend/cuda/loops/channels.cuh"
#include "fakequant/core/backend/cuda/loops/range_rows.cuh"
#include "fakequant/core/backend/cuda/loops/sums.cuh"
#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/reference/kernels/kernels.h"

namespace fq::cuda {
namespace {

// Bounds of an element as a RangeRow: `scale` has the lower bound, `bound` the upper one.
struct BoundsRow {
  FQ_HD RangeRow operator()(float lower, float upper) const { return {lower, 0, 0, upper}; }
};

struct ClipFormula {
  FQ_HD float value(float x, const RangeRow& r) const { return scalar::clip_value(x, r.scale, r.bound); }
  FQ_HD bool mask(float, const RangeRow&) const { return true; }
};

// Masks without a value: |x| <= amax, and lower < x < upper.
struct WithinFormula {
  FQ_HD bool mask(float x, const RangeRow& r) const { return scalar::modelopt_mask(x, r.bound); }
};
struct BetweenFormula {
  FQ_HD bool mask(float x, const RangeRow& r) const { return scalar::mask_open(x, r.scale, r.bound); }
};

template <class Formula>
void fill_mask(const Tensor& x, const Tensor& lower, const Tensor& upper, Formula formula, Tensor& mask) {
  with_rows(x, lower, upper, BoundsRow{}, [&](const auto& rows) { mask_by_rows(x, formula, rows, mask); });
}

// The gradient of a bound: dy of the elements that are clipped to it.
struct GradientsBeyond {
  const float *x, *dy, *bound;
  bool above;
  FQ_HD void operator()(PairSum& sum, std::int64_t i, std::int64_t) const {
    if (above ? x[i] >= *bound : x[i] <= *bound) sum.add(dy[i]);
  }
};

// One sum per bound, for bounds of several elements, which are rare. Only the case of one bound has a kernel.
void sum_on_host(const Tensor& x, const Tensor& dy, const Tensor& bound, bool above, Tensor& sums) {
  const Device host = Device::cpu();
  Tensor own = Tensor::empty(sums.shape(), DType::f64);
  cpu::sum_beyond(x.to(host), dy.to(host), bound.to(host), above, own);
  sums.copy_from(own);
}

struct PutSum {
  double* to;
  FQ_HD void operator()(std::int64_t, const PairSum& sum) const { *to = sum.value(); }
};

}  // namespace

void fill_amax_mask(const Tensor& x, const Tensor& amax, Tensor& mask) {
  fill_mask(x, amax, amax, WithinFormula{}, mask);
}
void fill_range_mask(const Tensor& x, const Tensor& lower, const Tensor& upper, Tensor& mask) {
  fill_mask(x, lower, upper, BetweenFormula{}, mask);
}

void clip(const Tensor& x, const Tensor& lower, const Tensor& upper, Tensor& y) {
  with_rows(x, lower, upper, BoundsRow{},
            [&](const auto& rows) { quantize_typed<float>(x, ClipFormula{}, rows, y, nullptr); });
}

void sum_beyond(const Tensor& x, const Tensor& dy, const Tensor& bound, bool above, Tensor& sums) {
  if (bound.numel() != 1) return sum_on_host(x, dy, bound, above, sums);
  const Tensor own = bound.to(x.device());
  // PairSum holds about 48 bits in two floats, without f64 arithmetic.
  const auto read = [](const Tensor& t) { return static_cast<const float*>(t.raw()); };
  reduce_channels(x.device(), ChannelView{1, x.numel(), x.numel()},
                  SumTerms<PairSum, GradientsBeyond>{{read(x), read(dy), read(own), above}},
                  PutSum{static_cast<double*>(sums.mutable_raw())});
}

}  // namespace fq::cuda
