#include <algorithm>
#include <limits>

#include "fakequant/core/backend/cuda/loops/atomics.cuh"
#include "fakequant/core/backend/cuda/loops/channels.cuh"
#include "fakequant/core/backend/cuda/loops/range_rows.cuh"
#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/reference/kernels/kernels.h"

namespace fq::cuda {
namespace {

// The bits of a division by the divisor. `inverse` is nonzero where multiplication with a correction has the
// same bits, which is faster.
struct IntegerFormula {
  float lower, upper;

  FQ_HD bool is_short(const RangeRow& r) const { return r.inverse != 0.0f; }
  FQ_HD float short_value(float x, const RangeRow& r) const {
    return scalar::divide_code(scalar::modelopt_code(x, r.scale, lower, upper), r.divisor, r.inverse);
  }
  FQ_HD float value(float x, const RangeRow& r) const {
    return is_short(r) ? short_value(x, r) : scalar::modelopt_fake_quant(x, r.scale, r.divisor, lower, upper);
  }
  template <int size>
  FQ_HD void values(const RangeRow& r, float (&v)[size]) const {
    if (is_short(r))
      for (float& each : v) each = short_value(each, r);
    else
      for (float& each : v) each = scalar::modelopt_fake_quant(each, r.scale, r.divisor, lower, upper);
  }
  FQ_HD bool mask(float x, const RangeRow& r) const { return scalar::modelopt_mask(x, r.bound); }
};

// The codes themselves, without dequantization.
struct CodeFormula {
  float lower, upper;
  FQ_HD float value(float x, const RangeRow& r) const {
    return scalar::modelopt_code(x, r.scale, lower, upper);
  }
  FQ_HD bool mask(float, const RangeRow&) const { return true; }
};

// Parameters of a range. Ranges up to 2^-24 give 0, unless any range is NaN (the reference tests the
// minimum). `guard` has the answer for ranges on the host; on the device `nans` counts the NaN ranges.
struct IntegerRow {
  float upper;
  bool guard;
  const std::int32_t* nans = nullptr;
  FQ_HD RangeRow operator()(float amax, float bound) const {
    const bool own = nans != nullptr ? *nans == 0 : guard;
    const float scale = scalar::modelopt_scale(amax, upper, own);
    const float divisor = scalar::modelopt_divisor(amax, scale, own);
    return {scale, divisor, scalar::divides_exactly(divisor) ? 1.0f / divisor : 0.0f, bound};
  }
};

struct E4m3Formula {
  FQ_HD float value(float x, const RangeRow& r) const {
    return scalar::modelopt_scaled_e4m3(x, r.scale, r.inverse);
  }
  FQ_HD bool mask(float x, const RangeRow& r) const { return scalar::modelopt_mask(x, r.bound); }
};

// Zero ranges behave as range 1; the value is multiplied by fl(1 / scale) and not divided (golden/README).
struct E4m3Row {
  FQ_HD RangeRow operator()(float amax, float bound) const {
    const float scale = scalar::modelopt_e4m3_scale(amax);
    return {scale, scale, 1.0f / scale, bound};
  }
};

struct IntegerCast {
  float lower, upper;
  FQ_HD float value(float x, const RangeRow&) const { return scalar::modelopt_int_cast(x, lower, upper); }
  FQ_HD bool mask(float x, const RangeRow&) const { return scalar::mask_closed(x, lower, upper); }
};

// Counts NaN and raises the alarm for negative ranges, which the host reports with the next value it reads.
struct CheckRanges {
  const float* amax;
  std::int32_t* nans;
  Alarm negative;
  FQ_HD void operator()(std::int64_t i) const {
    if (scalar::is_nan_(amax[i])) atomic_add(*nans, 1);
    if (amax[i] < 0.0f) raise(negative);
  }
};

// Prepares IntegerRow for ranges on the host or the device. Device ranges are checked by a kernel, so the
// host does not wait.
struct IntegerRows {
  Tensor nans;
  IntegerRow row;

  IntegerRows(const Tensor& amax, float upper) : row{upper, true} {
    if (amax.device().is_cpu()) {
      const float* a = amax.data<float>();
      row.guard = std::none_of(a, a + amax.numel(), scalar::is_nan_);
      return;
    }
    nans = Tensor::zeros({1}, DType::i32, amax.device());
    auto* count = static_cast<std::int32_t*>(nans.mutable_raw());
    row.nans = count;
    const auto negative =
        alarm(amax.device(), "[fake_tensor_quant] amax has a negative number: it must not be");
    launch_each(amax.device(), amax.numel(),
                CheckRanges{static_cast<const float*>(amax.raw()), count, negative});
  }
};

/// The smallest of numbers; NaN wins.
template <class T>
struct Smallest {
  using Sum = float;
  const T* x;
  FQ_HD float zero() const { return std::numeric_limits<float>::infinity(); }
  FQ_HD void add(float& least, std::int64_t i, std::int64_t) const { join(least, static_cast<float>(x[i])); }
  FQ_HD void join(float& least, float v) const {
    if (!scalar::is_nan_(least) && !(least < v)) least = v;
  }
};

struct PutNumber {
  float* to;
  FQ_HD void operator()(std::int64_t, float v) const { *to = v; }
};

}  // namespace

void fake_quant_integer(const Tensor& x, const Tensor& amax, const Tensor& bound, const IntFormat& format,
                        Tensor& y, Tensor* mask) {
  const auto lower = static_cast<float>(format.lower()), upper = static_cast<float>(format.upper());
  const IntegerRows rows(amax, upper);
  quantize_ranges(x, IntegerFormula{lower, upper}, amax, bound, rows.row, y, mask);
}

void integer_codes(const Tensor& x, const Tensor& amax, const IntFormat& format, Tensor& codes) {
  const auto lower = static_cast<float>(format.lower()), upper = static_cast<float>(format.upper());
  const IntegerRows made(amax, upper);
  with_rows(x, amax, amax, made.row, [&](const auto& rows) {
    quantize_typed<float>(x, CodeFormula{lower, upper}, rows, codes, nullptr);
  });
}

void fake_quant_e4m3(const Tensor& x, const Tensor& amax, const Tensor& bound, Tensor& y, Tensor* mask) {
  if (amax.defined()) return quantize_ranges(x, E4m3Formula{}, amax, bound, E4m3Row{}, y, mask);
  // Without a range: scale 1, and no bound for the gradient.
  const RangeRow plain{1, 1, 1, std::numeric_limits<float>::infinity()};
  quantize_by_rows(x, E4m3Formula{}, OneRange{plain}, y, mask);
}

void round_to_integers(const Tensor& x, float lower, float upper, Tensor& y, Tensor* mask) {
  const IntegerCast cast{lower, upper};
  quantize_by_rows(x, cast, OneRange{}, y, mask);
}

float smallest(const Tensor& x) {
  Tensor out = Tensor::empty({}, DType::f32, x.device());
  // One channel of all elements: a reduction of the whole tensor.
  const ChannelView all{1, x.numel(), x.numel()};
  visit_narrow_float(x.dtype(), [&]<class T>(T) {
    reduce_channels(x.device(), all, Smallest<T>{static_cast<const T*>(x.raw())},
                    PutNumber{static_cast<float*>(out.mutable_raw())});
  });
  return static_cast<float>(out.item());
}

}  // namespace fq::cuda
