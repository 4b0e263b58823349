#include "fakequant/core/backend/cpu/codes/accumulator_kernels.h"
#include "fakequant/core/backend/cpu/codes/accumulator_parts.h"
#include "fakequant/core/backend/cpu/codes/codes.h"
#include "fakequant/core/backend/cpu/codes/sum_kernels.h"

namespace fq::cpu {
namespace {

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
        const bool innermost = view.inner == 1;
        const SumValues own = v.at(c);
        float* values = to + at - begin;
        for (std::int64_t k = sum_values(from + at, length, own, innermost, values); k < length; ++k)
          values[k] = sum_value(biased_sum(from[at + k], own, innermost ? k : 0), own, innermost ? k : 0);
      });
    });
  }

  void operator()(const ProductSums& x) const {
    const auto scales = scales_of(x);
    const auto* bias = x.bias.defined() ? x.bias.data<std::int32_t>() : nullptr;
    sums(x.sums, x.axis, {bias, scales.data(), nullptr});
  }
  void operator()(const NormalizedSums& x) const {
    sums(x.sums, x.axis, {nullptr, x.factor.data<float>(), x.shift.data<float>()});
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

/// The ReLU of kernels takes a NaN to 0; here it stays, for whoever reads it to find.
void keep_nans(const Tensor& values, Tensor& out) {
  const auto* from = values.data<float>(values.layout());
  auto* to = out.mutable_data<float>(out.layout());
  for (std::int64_t i = 0; i < out.numel(); ++i)
    if (std::isnan(from[i])) to[i] = from[i];
}

}  // namespace

void accumulator_values(const Accumulator& x, Tensor& out, Tensor* mask) {
  auto* bits = static_cast<std::uint8_t*>(mask != nullptr ? mask->mutable_raw() : nullptr);
  std::visit(ValuesOf{out, x.relu, bits}, x.value);
  if (!x.relu || !may_be_nan(x)) return;
  Tensor plain = Tensor::empty(out.shape(), DType::f32, out.device(), out.layout());
  std::visit(ValuesOf{plain, false, nullptr}, x.value);
  keep_nans(plain, out);
}

}  // namespace fq::cpu
