#include "fakequant/core/check.h"
#include "fakequant/core/cpu/codes.h"
#include "fakequant/core/cpu/requantize.h"

namespace fq::cpu {
namespace {

/// Calls f(i, channel, A) with A = the sum and its bias code, exact in int32.
template <class F>
void for_sums(const Tensor& tensor, const Tensor& bias_codes, int axis, F&& f) {
  const auto* sums = tensor.data<std::int32_t>(tensor.layout());
  const auto* bias = bias_codes.defined() ? bias_codes.data<std::int32_t>() : nullptr;
  for_runs(tensor.numel(), Channels::of(tensor.shape(), tensor.layout(), axis),
           [&](std::int64_t begin, std::int64_t end, std::int64_t channel) {
             const std::int32_t b = bias != nullptr ? bias[channel] : 0;
             for (std::int64_t i = begin; i < end; ++i) f(i, channel, static_cast<float>(sums[i] + b));
           });
}

struct Scales {
  const float* values;
  bool one;
  explicit Scales(const Tensor& scale) : values(scale.data<float>()), one(scale.numel() == 1) {}
  float operator[](std::int64_t channel) const { return values[one ? 0 : channel]; }
};

/// Calls f(i, a, b) with the two codes as floats.
template <class F>
void for_pairs(const CodeAddition& x, F&& f) {
  const void* a = x.a.codes.raw();
  const void* b = x.b.codes.raw();
  const DType ta = x.a.codes.dtype(), tb = x.b.codes.dtype();
  for_runs(x.a.codes.numel(), {1, x.a.codes.numel()},
           [&](std::int64_t begin, std::int64_t end, std::int64_t) {
             for (std::int64_t i = begin; i < end; ++i) f(i, load_code(a, ta, i), load_code(b, tb, i));
           });
}

float pooled_scale(const PooledSums& x) {
  return scalar::div_(x.scale.data<float>()[0], static_cast<float>(x.count));
}

struct ValuesOf {
  float* out;
  void operator()(const ProductSums& x) const {
    const Scales scale(x.scale);
    for_sums(x.sums, x.bias, x.axis,
             [&](auto i, auto c, float a) { out[i] = scalar::dequantize_code(a, scale[c]); });
  }
  void operator()(const NormalizedSums& x) const {
    const auto *factor = x.factor.data<float>(), *shift = x.shift.data<float>();
    for_sums(x.sums, {}, x.axis,
             [&](auto i, auto c, float a) { out[i] = scalar::normalized_sum(a, factor[c], shift[c]); });
  }
  void operator()(const PooledSums& x) const {
    const auto* sums = x.sums.data<std::int32_t>(x.sums.layout());
    const float scale = pooled_scale(x);
    for (std::int64_t i = 0; i < x.sums.numel(); ++i)
      out[i] = scalar::dequantize_code(static_cast<float>(sums[i]), scale);
  }
  void operator()(const Averages& x) const {
    std::memcpy(out, x.values.raw(), static_cast<std::size_t>(x.values.nbytes()));
  }
  void operator()(const CodeAddition& x) const {
    const float sa = x.a.spec.scale.data<float>()[0], sb = x.b.spec.scale.data<float>()[0];
    for_pairs(x, [&](auto i, float a, float b) {
      out[i] = scalar::add_(scalar::dequantize_code(a, sa), scalar::dequantize_code(b, sb));
    });
  }
  void operator()(const AccumulatorConcat&) const {}   // joined by the caller
  void operator()(const AccumulatorReshape&) const {}  // reshaped by the caller
};

struct CodesOf {
  const QuantSpec& spec;
  const GridRow& row;
  float lower;
  void* codes;
  DType dtype;

  void operator()(const ProductSums&) const {}     // in one pass with the mask
  void operator()(const NormalizedSums&) const {}  // in one pass with the mask
  void operator()(const PooledSums& x) const {
    const auto* sums = x.sums.data<std::int32_t>(x.sums.layout());
    const float m =
        scalar::div_(x.scale.data<float>()[0], scalar::mul_(row.scale, static_cast<float>(x.count)));
    for (std::int64_t i = 0; i < x.sums.numel(); ++i)
      store_code(codes, dtype, i, scalar::requantize_code(static_cast<float>(sums[i]), m, lower, row.upper));
  }
  void operator()(const Averages& x) const {
    const auto* values = x.values.data<float>(x.values.layout());
    const auto offset = static_cast<float>(spec.zero_point);
    for (std::int64_t i = 0; i < x.values.numel(); ++i)
      store_code(codes, dtype, i, scalar::average_code(values[i], row.scale, offset, lower, row.upper));
  }
  void operator()(const CodeAddition& x) const {
    const auto za = static_cast<float>(x.a.spec.zero_point), zb = static_cast<float>(x.b.spec.zero_point);
    const auto zy = static_cast<float>(spec.zero_point);
    const float ra = scalar::div_(x.a.spec.scale.data<float>()[0], row.scale);
    const float rb = scalar::div_(x.b.spec.scale.data<float>()[0], row.scale);
    const float fused = scalar::sub_(zy, scalar::add_(scalar::mul_(ra, za), scalar::mul_(rb, zb)));
    for_pairs(x, [&](auto i, float a, float b) {
      store_code(codes, dtype, i, scalar::add_code(a + za, b + zb, ra, rb, fused, zy, lower, row.upper));
    });
  }
  void operator()(const AccumulatorConcat&) const {}   // joined by the caller
  void operator()(const AccumulatorReshape&) const {}  // reshaped by the caller
};

}  // namespace

void accumulator_values(const Accumulator& x, Tensor& out) {
  std::visit(ValuesOf{out.mutable_data<float>(out.layout())}, x.value);
}

bool accumulator_codes(const Accumulator& x, const QuantSpec& spec, QuantizedTensor& out) {
  const GridRow row = grid_rows(spec)[0];
  if (const auto* products = std::get_if<ProductSums>(&x.value)) {
    requantize_products(*products, row, x.relu, out);
    return true;
  }
  if (const auto* normalized = std::get_if<NormalizedSums>(&x.value)) {
    requantize_normalized(*normalized, row, x.relu, out);
    return true;
  }
  const float lower = x.relu ? std::max(row.lower, 0.0f) : row.lower;
  std::visit(CodesOf{spec, row, lower, out.codes.mutable_raw(), out.codes.dtype()}, x.value);
  return false;
}

void relu_values(Tensor& values, Tensor* mask) {
  auto* v = values.mutable_data<float>(values.layout());
  auto* bits = mask != nullptr ? static_cast<std::uint8_t*>(mask->mutable_raw()) : nullptr;
  if (bits != nullptr) std::memset(bits, 0, static_cast<std::size_t>(mask->nbytes()));
  for_runs(values.numel(), {1, values.numel()}, [&](std::int64_t begin, std::int64_t end, std::int64_t) {
    for (std::int64_t i = begin; i < end; ++i) {
      if (bits != nullptr) set_bit(bits, i, v[i] > 0.0f);
      v[i] = scalar::max_(v[i], 0.0f);
    }
  });
}

void range_mask(const Tensor& values, const GridRow& row, bool relu, Tensor& mask) {
  const auto* v = values.data<float>(values.layout());
  auto* bits = static_cast<std::uint8_t*>(mask.mutable_raw());
  std::memset(bits, 0, static_cast<std::size_t>(mask.nbytes()));
  for_runs(values.numel(), {1, values.numel()}, [&](std::int64_t begin, std::int64_t end, std::int64_t) {
    for (std::int64_t i = begin; i < end; ++i)
      set_bit(bits, i,
              relu ? scalar::mask_open_below(v[i], 0.0f, row.amax)
                   : scalar::mask_closed(v[i], row.mask_lower, row.amax));
  });
}

}  // namespace fq::cpu
