#include <algorithm>
#include <cmath>

#include "fakequant/core/backend/cpu/codes/accumulator_kernels.h"
#include "fakequant/core/backend/cpu/codes/codes.h"
#include "fakequant/core/backend/cpu/codes/requantize.h"
#include "fakequant/core/error.h"
#include "fakequant/core/numerics/detail/sum_formulas.h"

namespace fq::cpu {
namespace {

/// Calls f(begin, count) for stretches of all elements, in parallel.
template <class F>
void for_stretches(const Tensor& x, F&& f) {
  for_runs(x.numel(), {1, x.numel()},
           [&](std::int64_t begin, std::int64_t end, std::int64_t) { f(begin, end - begin); });
}

CodeArray codes_of(const QuantizedTensor& x, std::int64_t begin) {
  return CodeArray{x.codes.raw(), x.codes.dtype()}.from(begin);
}
float scale_of(const QuantizedTensor& x) { return x.spec.scale.data<float>()[0]; }
float offset_of(const QuantSpec& spec) { return static_cast<float>(spec.zero_point); }

std::uint8_t* mask_of(Tensor* mask) {
  return mask != nullptr ? static_cast<std::uint8_t*>(mask->mutable_raw()) : nullptr;
}

float pooled_scale(const PooledSums& x) {
  return detail::pooled_scale(x.scale.data<float>()[0], static_cast<float>(x.count));
}

/// Calls f(first element, length, channel) for elements [begin, end) in memory order: stretches of one
/// channel, or of consecutive ones from `channel` on where the channel is innermost.
template <class F>
void for_channels(const Channels& view, std::int64_t begin, std::int64_t end, F&& f) {
  for (std::int64_t i = begin; i < end;) {
    const std::int64_t channel = view.at(i);
    const std::int64_t left = view.inner == 1 ? view.channels - channel : view.inner - i % view.inner;
    const std::int64_t length = std::min(left, end - i);
    f(i, length, channel);
    i += length;
  }
}

/// Floats of [0, count) from sums, one by one from `done` on.
void rest_of_sums(const std::int32_t* sums, std::int64_t done, std::int64_t count, const SumValues& v,
                  float* out) {
  for (std::int64_t i = done; i < count; ++i) {
    const std::int64_t c = v.innermost ? i : 0;
    const auto a = static_cast<float>(sums[i] + (v.bias != nullptr ? v.bias[c] : 0));
    out[i] = v.shift != nullptr ? scalar::normalized_sum(a, v.scale[c], v.shift[c])
                                : scalar::dequantize_code(a, v.scale[c]);
  }
}

struct ValuesOf {
  Tensor& out;
  bool with_relu;
  std::uint8_t* mask;

  /// f(begin, count, where their values go)
  template <class F>
  void write(F&& f) const {
    auto* values = out.mutable_data<float>(out.layout());
    for_stretches(out, [&](std::int64_t i, std::int64_t count) {
      f(i, count, values + i);
      if (with_relu) relu(values + i, count, mask != nullptr ? mask + i / 8 : nullptr);
    });
  }
  /// `v` for channel 0
  void sums(const Tensor& tensor, int axis, const SumValues& v) const {
    const auto view = Channels::of(tensor.shape(), tensor.layout(), axis);
    const auto* from = tensor.data<std::int32_t>(tensor.layout());
    write([&](std::int64_t begin, std::int64_t count, float* to) {
      for_channels(view, begin, begin + count, [&](std::int64_t at, std::int64_t length, std::int64_t c) {
        const SumValues own{v.bias != nullptr ? v.bias + c : nullptr, v.scale + c,
                            v.shift != nullptr ? v.shift + c : nullptr, view.inner == 1};
        float* values = to + at - begin;
        rest_of_sums(from + at, sum_values(from + at, length, own, values), length, own, values);
      });
    });
  }

  void operator()(const ProductSums& x) const {
    const auto channels = Channels::of(x.sums.shape(), x.sums.layout(), x.axis).channels;
    auto scale = x.scale.to_vector<float>();
    if (scale.size() == 1) scale.assign(static_cast<std::size_t>(channels), scale[0]);
    const auto* bias = x.bias.defined() ? x.bias.data<std::int32_t>() : nullptr;
    sums(x.sums, x.axis, {bias, scale.data(), nullptr, false});
  }
  void operator()(const NormalizedSums& x) const {
    sums(x.sums, x.axis, {nullptr, x.factor.data<float>(), x.shift.data<float>(), false});
  }
  void operator()(const PooledSums& x) const {
    const CodeArray all{x.sums.raw(), DType::i32};
    write([&](std::int64_t i, std::int64_t count, float* to) {
      dequantize(all.from(i), count, pooled_scale(x), to);
    });
  }
  void operator()(const Averages& x) const {
    const auto* values = x.values.data<float>(x.values.layout());
    write([&](std::int64_t i, std::int64_t count, float* to) { std::copy_n(values + i, count, to); });
  }
  void operator()(const CodeAddition& x) const {
    write([&](std::int64_t i, std::int64_t count, float* to) {
      addition_values(codes_of(x.a, i), codes_of(x.b, i), count, scale_of(x.a), scale_of(x.b), to);
    });
  }
  void operator()(const AccumulatorConcat&) const {}  // joined by the caller
  void operator()(const AccumulatorMove&) const {}    // moved by the caller
};

struct CodesOf {
  const QuantSpec& spec;
  const GridRow& row;
  bool relu;
  QuantizedTensor& out;

  [[nodiscard]] Reader reader() const { return detail::sum_reader(row, relu); }
  /// f(begin, count, where their codes go)
  template <class F>
  void write(F&& f) const {
    auto* codes = static_cast<std::byte*>(out.codes.mutable_raw());
    auto* mask = mask_of(out.mask.defined() ? &out.mask : nullptr);
    const DType dtype = out.codes.dtype();
    for_stretches(out.codes, [&](std::int64_t i, std::int64_t count) {
      f(i, count, CodesOut{codes + byte_size(dtype, i), dtype, mask != nullptr ? mask + i / 8 : nullptr});
    });
  }

  void operator()(const ProductSums& x) const { requantize_products(x, row, relu, out); }
  void operator()(const NormalizedSums& x) const { requantize_normalized(x, row, relu, out); }
  void operator()(const PooledSums& x) const {
    const auto* sums = x.sums.data<std::int32_t>(x.sums.layout());
    const float m =
        detail::pooled_multiplier(x.scale.data<float>()[0], static_cast<float>(x.count), row.scale);
    write([&](std::int64_t i, std::int64_t count, const CodesOut& to) {
      requantize_sums(sums + i, count, m, pooled_scale(x), reader(), to);
    });
  }
  void operator()(const Averages& x) const {
    const auto* values = x.values.data<float>(x.values.layout());
    write([&](std::int64_t i, std::int64_t count, const CodesOut& to) {
      requantize_averages(values + i, count, row.scale, offset_of(spec), reader(), to);
    });
  }
  void operator()(const CodeAddition& x) const {
    const auto grid = detail::addition_grid(scale_of(x.a), scale_of(x.b), row.scale, offset_of(x.a.spec),
                                            offset_of(x.b.spec), offset_of(spec));
    write([&](std::int64_t i, std::int64_t count, const CodesOut& to) {
      requantize_addition(codes_of(x.a, i), codes_of(x.b, i), count, grid, reader(), to);
    });
  }
  void operator()(const AccumulatorConcat&) const {}  // joined by the caller
  void operator()(const AccumulatorMove&) const {}    // moved by the caller
};

bool has_nan(const Tensor& numbers) {
  const auto* v = numbers.data<float>();
  return std::any_of(v, v + numbers.numel(), [](float x) { return std::isnan(x); });
}

/// Integers are never NaN: only what batch normalization multiplies them by and adds.
bool may_be_nan(const Accumulator& x) {
  const auto* normalized = std::get_if<NormalizedSums>(&x.value);
  return normalized != nullptr && (has_nan(normalized->factor) || has_nan(normalized->shift));
}

/// The ReLU of kernels takes a NaN to 0; here it stays, for whoever reads it to find.
void keep_nans(const Tensor& values, Tensor& out) {
  const auto* from = values.data<float>(values.layout());
  auto* to = out.mutable_data<float>(out.layout());
  for (std::int64_t i = 0; i < out.numel(); ++i)
    if (std::isnan(from[i])) to[i] = from[i];
}

}  // namespace

void accumulator_values(const Accumulator& x, Tensor& out, Tensor* mask) {
  std::visit(ValuesOf{out, x.relu, mask_of(mask)}, x.value);
  if (!x.relu || !may_be_nan(x)) return;
  Tensor plain = Tensor::empty(out.shape(), DType::f32, out.device(), out.layout());
  std::visit(ValuesOf{plain, false, nullptr}, x.value);
  keep_nans(plain, out);
}

void accumulator_codes(const Accumulator& x, QuantizedTensor& out, const std::string& nan_text) {
  if (may_be_nan(x)) throw NumericError(nan_text);
  const GridRow row = grid_rows(out.spec)[0];
  std::visit(CodesOf{out.spec, row, x.relu, out}, x.value);
}

void bias_codes(const Tensor& b, const Tensor& scale, std::int32_t room, Tensor& out) {
  const auto* bias = b.data<float>();
  const auto* s = scale.data<float>();
  auto* codes = out.mutable_data<std::int32_t>();
  for (std::int64_t c = 0; c < b.numel(); ++c)
    codes[c] = detail::bias_code(bias[c], s[scale.numel() == 1 ? 0 : c], room);
}

}  // namespace fq::cpu
