#include "fakequant/core/backend/cpu/codes/accumulator_kernels.h"
#include "fakequant/core/backend/cpu/codes/accumulator_parts.h"
#include "fakequant/core/backend/cpu/codes/stretch_values.h"
#include "fakequant/core/backend/cpu/codes/sum_kernels.h"
#include "fakequant/core/backend/kernel_columns.h"

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

using Read = std::function<void(std::int64_t begin, std::int64_t count, float* to)>;

/// `v` for channel 0
void read_sums(const std::int32_t* sums, const Channels& view, const SumValues& v, std::int64_t begin,
               std::int64_t count, float* to) {
  for_channels(view, begin, begin + count, [&](std::int64_t at, std::int64_t length, std::int64_t c) {
    const bool innermost = view.inner == 1;
    const SumValues own = v.at(c);
    float* values = to + at - begin;
    for (std::int64_t k = sum_values(sums + at, length, own, innermost, values); k < length; ++k)
      values[k] = sum_value(biased_sum(sums[at + k], own, innermost ? k : 0), own, innermost ? k : 0);
  });
}

const std::int32_t* numbers_of(const Tensor& sums) { return sums.data<std::int32_t>(sums.layout()); }

/// The numbers of channels as they are read: of innermost ones runs, so that no stretch is short.
class ChannelSums {
 public:
  ChannelSums(const Tensor& sums, int axis)
      : sums_(numbers_of(sums)),
        view_(Channels::of(sums.shape(), sums.layout(), axis)),
        channels_(view_.channels) {
    if (view_.inner == 1) view_.channels = run_width(channels_);
  }
  template <class T>
  [[nodiscard]] std::vector<T> each(const T* numbers) const {
    if (view_.inner == 1 && channels_ > 0) return repeated<T>(numbers, channels_);
    return {numbers, numbers + channels_};
  }
  /// None where there is no bias.
  [[nodiscard]] std::vector<std::int32_t> bias(const Tensor& codes) const {
    return codes.defined() ? each(codes.data<std::int32_t>()) : std::vector<std::int32_t>();
  }
  void read(const SumValues& numbers, std::int64_t begin, std::int64_t count, float* to) const {
    read_sums(sums_, view_, numbers, begin, count, to);
  }

 private:
  const std::int32_t* sums_;
  Channels view_;
  std::int64_t channels_;
};

struct ReaderOf {
  Read operator()(const ProductSums& x) const {
    const ChannelSums sums(x.sums, x.axis);
    return [sums, scales = sums.each(scales_of(x).data()), bias = sums.bias(x.bias)](
               std::int64_t begin, std::int64_t count, float* to) {
      sums.read({bias.empty() ? nullptr : bias.data(), scales.data(), nullptr}, begin, count, to);
    };
  }
  Read operator()(const NormalizedSums& x) const {
    const ChannelSums sums(x.sums, x.axis);
    return [sums, factor = sums.each(x.factor.data<float>()), shift = sums.each(x.shift.data<float>()),
            bias = sums.bias(x.bias)](std::int64_t begin, std::int64_t count, float* to) {
      sums.read({bias.empty() ? nullptr : bias.data(), factor.data(), shift.data()}, begin, count, to);
    };
  }
  Read operator()(const PooledSums& x) const {
    return [all = CodeArray{x.sums.raw(), DType::i32}, scale = pooled_scale(x)](
               std::int64_t begin, std::int64_t count, float* to) {
      dequantize(all.from(begin), count, scale, to);
    };
  }
  Read operator()(const Averages& x) const {
    return [values = x.values.data<float>(x.values.layout())](
               std::int64_t begin, std::int64_t count, float* to) { std::copy_n(values + begin, count, to); };
  }
  Read operator()(const CodeAddition& x) const {
    return [&x](std::int64_t begin, std::int64_t count, float* to) {
      addition_values(codes_of(x.a, begin), codes_of(x.b, begin), count, scale_of(x.a), scale_of(x.b), to);
    };
  }
  Read operator()(const AccumulatorConcat&) const { return {}; }  // joined by the caller
  Read operator()(const AccumulatorMove&) const { return {}; }    // moved by the caller
};

/// The ReLU of kernels takes a NaN to 0; here it stays, for whoever reads it to find.
void keep_nans(const StretchValues& plain, Tensor& out) {
  auto* to = out.mutable_data<float>(out.layout());
  for_stretches(out, [&](std::int64_t begin, std::int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    plain.plain(begin, count, values.data());
    for (std::int64_t i = 0; i < count; ++i)
      if (const float v = values[static_cast<std::size_t>(i)]; std::isnan(v)) to[begin + i] = v;
  });
}

}  // namespace

StretchValues::StretchValues(const Accumulator& x) : relu_(x.relu), read_(std::visit(ReaderOf{}, x.value)) {}

bool StretchValues::can_read(const Accumulator& x) {
  return !std::holds_alternative<AccumulatorConcat>(x.value) &&
         !std::holds_alternative<AccumulatorMove>(x.value);
}

void StretchValues::operator()(std::int64_t begin, std::int64_t count, float* to, std::uint8_t* mask) const {
  read_(begin, count, to);
  if (relu_) relu(to, count, mask);
}

void accumulator_values(const Accumulator& x, Tensor& out, Tensor* mask) {
  auto* bits = static_cast<std::uint8_t*>(mask != nullptr ? mask->mutable_raw() : nullptr);
  auto* values = out.mutable_data<float>(out.layout());
  const StretchValues read(x);
  for_stretches(out, [&](std::int64_t i, std::int64_t count) {
    read(i, count, values + i, bits != nullptr ? bits + i / 8 : nullptr);
  });
  if (x.relu && may_be_nan(x)) keep_nans(read, out);
}

}  // namespace fq::cpu
