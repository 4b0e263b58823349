// Kernels that read an Accumulator, as codes and as floats.

#include <algorithm>
#include <cmath>
#include <vector>

#include "fakequant/core/accumulator.h"
#include "fakequant/core/backend/cpu/codes/accumulator_kernels.h"
#include "fakequant/core/backend/cpu/codes/code_kernels.h"
#include "fakequant/core/backend/cpu/codes/grid.h"
#include "fakequant/core/backend/cpu/codes/stretch_values.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/blocks/detail/channels.h"
#include "fakequant/core/error.h"
#include "fakequant/core/numerics/detail/sum_formulas.h"

namespace fq::cpu {
namespace {

/// Calls f(begin, count) for pieces that cover all elements, in parallel.
template <class F>
void visit_stretches(const Tensor& x, F&& f) {
  visit_runs(x.numel(), {1, x.numel()},
             [&](std::int64_t begin, std::int64_t end, std::int64_t) { f(begin, end - begin); });
}

CodeArray code_array(const QuantizedTensor& x, std::int64_t begin) {
  return CodeArray{x.codes.raw(), x.codes.dtype()}.from(begin);
}

float code_scale(const QuantizedTensor& x) { return x.grid.scale.data<float>()[0]; }

/// Returns one scale for each channel.
std::vector<float> channel_scales(const ProductSums& x) {
  auto scales = x.scale.to_vector<float>();
  const auto channels = Channels::of(x.sums.shape(), x.sums.layout(), x.axis).channels;
  if (scales.size() == 1) scales.assign(static_cast<std::size_t>(channels), scales[0]);
  return scales;
}

/// Adds the bias code of channel `c` to a sum. `sum_value` returns the float value of the result.
float biased_sum(std::int32_t sum, const SumValues& v, std::int64_t c) {
  return static_cast<float>(sum + (v.bias != nullptr ? v.bias[c] : 0));
}
float sum_value(float a, const SumValues& v, std::int64_t c) {
  return v.shift != nullptr ? scalar::normalized_sum(a, v.scale[c], v.shift[c])
                            : scalar::dequantize_code(a, v.scale[c]);
}

// PooledSums are sums over the codes of `count` pixels, which this scale turns into averages.
float pooled_scale(const PooledSums& x) {
  return detail::pooled_scale(x.scale.data<float>()[0], static_cast<float>(x.count));
}

bool has_nan(const Tensor& numbers) {
  const auto* v = numbers.data<float>();
  return std::any_of(v, v + numbers.numel(), [](float x) { return std::isnan(x); });
}

/// Returns whether a value can be NaN. Integers cannot; only the factor and shift of batch normalization can.
bool may_be_nan(const Accumulator& x) {
  const auto* normalized = std::get_if<NormalizedSums>(&x.value);
  return normalized != nullptr && (has_nan(normalized->factor) || has_nan(normalized->shift));
}

using Floats = std::vector<float>;

template <class T>
const T* pointer(const std::vector<T>& values) {
  return values.empty() ? nullptr : values.data();
}

/// Per-channel data of a pass over the sums. Unused vectors are empty.
struct Parameters {
  std::vector<std::int32_t> bias;
  Floats scale, multiplier, shift, offset;

  /// Repeats the numbers for passes over innermost channels. One channel at a time needs no repetition.
  void repeat(std::int64_t channels) {
    const auto widen = [&]<class T>(std::vector<T>& values) {
      if (!values.empty()) values = repeated<T>(values.data(), channels);
    };
    widen(bias);
    for (Floats* values : {&scale, &multiplier, &shift, &offset}) widen(*values);
  }
  [[nodiscard]] SumGrid grid(const SumReader& reader, std::int64_t width) const {
    return {
        {pointer(bias), pointer(scale), pointer(shift)}, pointer(multiplier), pointer(offset), width, reader};
  }
};

// Storage offset of the codes in exported files: 0, or 128 for codes stored as unsigned. It affects only the
// rounding of additions and averages.
float grid_offset(const Grid& grid) { return static_cast<float>(grid.zero_point); }

// Returns multipliers from sums to grid positions. Dividing here leaves one multiplication per sum, as in
// ONNX Runtime. Dividing each sum would change some codes.
Floats over(const Floats& values, float step) {
  Floats out = values;
  for (float& v : out) v = scalar::div_(v, step);
  return out;
}

/// One pass over sums of products, or over channels of them.
struct SumPass {
  const std::int32_t* sums;
  SumGrid grid;  // pointers to channel 0
  void* codes;
  std::uint8_t* mask;
  DType dtype;

  [[nodiscard]] SumGrid at(std::int64_t channel) const {
    SumGrid g = grid;
    g.values = grid.values.at(channel);
    g.multiplier += channel;
    if (g.offset != nullptr) g.offset += channel;
    return g;
  }
  /// Processes elements one by one. `first` is the first element of a run, or of the channel.
  void rest(std::int64_t first, std::int64_t begin, std::int64_t end, const SumGrid& g) const {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t c = g.width == 0 ? 0 : (i - first) % g.width;
      const float a = biased_sum(sums[i], g.values, c);
      store_code(
          codes, dtype, i,
          g.offset == nullptr
              ? scalar::requantize_code(a, g.multiplier[c], g.reader.lower, g.reader.upper)
              : scalar::normalized_code(a, g.multiplier[c], g.offset[c], g.reader.lower, g.reader.upper));
      if (mask != nullptr) set_bit(mask, i, detail::passes(g.reader, sum_value(a, g.values, c)));
    }
  }
  /// Processes whole vectors. `begin` is on a byte boundary of the mask.
  [[nodiscard]] std::int64_t vectors(std::int64_t begin, std::int64_t end, const SumGrid& g) const {
    auto* bits = mask != nullptr ? mask + begin / 8 : nullptr;
    if (dtype == DType::i8)
      return requantize(sums + begin, end - begin, g, static_cast<std::int8_t*>(codes) + begin, bits);
    if (dtype == DType::u8)
      return requantize(sums + begin, end - begin, g, static_cast<std::uint8_t*>(codes) + begin, bits);
    return 0;
  }
  void runs(std::int64_t begin, std::int64_t end) const {
    rest(begin, begin + vectors(begin, end, grid), end, grid);
  }
  void channel(std::int64_t begin, std::int64_t end, std::int64_t c) const {
    const SumGrid g = at(c);
    // Vectors write whole bytes of the mask, so the elements up to the next byte come first.
    const std::int64_t start = std::min(end, (begin + 7) / 8 * 8);
    rest(begin, begin, start, g);
    rest(begin, start + vectors(start, end, g), end, g);
  }
};

struct CodesOf {
  const Grid& grid;
  const GridRow& row;
  bool relu;
  QuantizedTensor& out;

  [[nodiscard]] SumReader reader() const { return detail::sum_reader(row, relu); }
  [[nodiscard]] std::uint8_t* mask_bytes() const {
    return static_cast<std::uint8_t*>(out.mask.defined() ? out.mask.mutable_raw() : nullptr);
  }
  void products(const Tensor& sums, int axis, Parameters parameters) const {
    const auto view = Channels::of(sums.shape(), sums.layout(), axis);
    const bool innermost = view.inner == 1;
    if (innermost) parameters.repeat(view.channels);
    auto* mask = mask_bytes();
    // set_bit requires bits of 0.
    if (mask != nullptr) std::memset(mask, 0, static_cast<std::size_t>(out.mask.nbytes()));
    const SumPass pass{sums.data<std::int32_t>(sums.layout()),
                       parameters.grid(reader(), innermost ? run_width(view.channels) : 0),
                       out.codes.mutable_raw(), mask, out.codes.dtype()};
    if (innermost)
      parallel_blocks(RunBlocks(sums.numel(), view.channels),
                      [&](std::int64_t begin, std::int64_t end) { pass.runs(begin, end); });
    else
      visit_runs(sums.numel(), view,
                 [&](std::int64_t begin, std::int64_t end, std::int64_t c) { pass.channel(begin, end, c); });
  }
  /// Calls f(begin, count, destination of the codes).
  template <class F>
  void write(F&& f) const {
    auto* codes = static_cast<std::byte*>(out.codes.mutable_raw());
    auto* mask = mask_bytes();
    const DType dtype = out.codes.dtype();
    visit_stretches(out.codes, [&](std::int64_t i, std::int64_t count) {
      f(i, count, CodesOut{codes + byte_size(dtype, i), dtype, mask != nullptr ? mask + i / 8 : nullptr});
    });
  }

  void operator()(const ProductSums& x) const {
    Parameters p;
    p.scale = channel_scales(x);
    p.multiplier = over(p.scale, row.scale);
    if (x.bias.defined()) p.bias = x.bias.to_vector<std::int32_t>();
    products(x.sums, x.axis, std::move(p));
  }
  void operator()(const NormalizedSums& x) const {
    Parameters p;
    p.scale = x.factor.to_vector<float>();
    p.shift = x.shift.to_vector<float>();
    p.multiplier = over(p.scale, row.scale);
    p.offset = over(p.shift, row.scale);
    if (x.bias.defined()) p.bias = x.bias.to_vector<std::int32_t>();
    products(x.sums, x.axis, std::move(p));
  }
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
      // Average pooling divides, as ONNX Runtime's QLinearAveragePool does. A multiplication by 1 / scale
      // would change codes at ties.
      requantize_averages(values + i, count, row.scale, grid_offset(grid), reader(), to);
    });
  }
  void operator()(const CodeAddition& x) const {
    const auto added = detail::addition_grid(code_scale(x.a), code_scale(x.b), row.scale,
                                             grid_offset(x.a.grid), grid_offset(x.b.grid), grid_offset(grid));
    write([&](std::int64_t i, std::int64_t count, const CodesOut& to) {
      requantize_addition(code_array(x.a, i), code_array(x.b, i), count, added, reader(), to);
    });
  }
  void operator()(const AccumulatorConcat&) const {}  // joined by the caller
  void operator()(const AccumulatorMove&) const {}    // moved by the caller
  void operator()(const DeferredFloats&) const {}     // computed by the caller
};

}  // namespace

void accumulator_codes(const Accumulator& x, QuantizedTensor& out, const std::string& nan_text) {
  if (may_be_nan(x)) throw NumericError(nan_text);
  const GridRow row = grid_rows(out.grid)[0];
  std::visit(CodesOf{out.grid, row, x.relu, out}, x.value);
}

void bias_codes(const Tensor& b, const Tensor& scale, std::int32_t room, const std::string& nan_text,
                Tensor& out) {
  const auto* bias = b.data<float>();
  const auto* s = scale.data<float>();
  auto* codes = out.mutable_data<std::int32_t>();
  bool nan = false;
  for (std::int64_t c = 0; c < b.numel(); ++c) {
    codes[c] = detail::bias_code(bias[c], s[scale.numel() == 1 ? 0 : c], room);
    nan |= scalar::is_nan_(bias[c]);
  }
  if (nan) throw NumericError(nan_text);
}

namespace {

/// Calls f(first element, length, channel) for elements [begin, end) in memory order. A piece has one
/// channel, or, if the channels are innermost, consecutive channels beginning with `channel`.
template <class F>
void visit_channel_runs(const Channels& view, std::int64_t begin, std::int64_t end, F&& f) {
  for (std::int64_t i = begin; i < end;) {
    const std::int64_t channel = view.at(i);
    const std::int64_t left = view.inner == 1 ? view.channels - channel : view.inner - i % view.inner;
    const std::int64_t length = std::min(left, end - i);
    f(i, length, channel);
    i += length;
  }
}

// Type erasure costs one indirect call per stretch of some thousand elements.
using Read = std::function<void(std::int64_t begin, std::int64_t count, float* to)>;

/// Reads the values of sums. `v` has the numbers of channel 0.
void read_sums(const std::int32_t* sums, const Channels& view, const SumValues& v, std::int64_t begin,
               std::int64_t count, float* to) {
  visit_channel_runs(view, begin, begin + count, [&](std::int64_t at, std::int64_t length, std::int64_t c) {
    const bool innermost = view.inner == 1;
    const SumValues own = v.at(c);
    float* values = to + at - begin;
    for (std::int64_t k = sum_values(sums + at, length, own, innermost, values); k < length; ++k)
      values[k] = sum_value(biased_sum(sums[at + k], own, innermost ? k : 0), own, innermost ? k : 0);
  });
}

const std::int32_t* sum_data(const Tensor& sums) { return sums.data<std::int32_t>(sums.layout()); }

/// Per-channel numbers in reading order: repeated to runs for innermost channels, to avoid short pieces.
class ChannelSums {
 public:
  ChannelSums(const Tensor& sums, int axis)
      : sums_(sum_data(sums)),
        view_(Channels::of(sums.shape(), sums.layout(), axis)),
        channels_(view_.channels) {
    if (view_.inner == 1) view_.channels = run_width(channels_);
  }
  template <class T>
  [[nodiscard]] std::vector<T> each(const T* numbers) const {
    if (view_.inner == 1 && channels_ > 0) return repeated<T>(numbers, channels_);
    return {numbers, numbers + channels_};
  }
  /// Returns the bias codes. Empty without a bias.
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
    // The reader owns the repeated numbers: it outlives this call.
    return [sums, scales = sums.each(channel_scales(x).data()), bias = sums.bias(x.bias)](
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
    // StretchValues requires that the accumulator outlives it.
    return [&x](std::int64_t begin, std::int64_t count, float* to) {
      addition_values(code_array(x.a, begin), code_array(x.b, begin), count, code_scale(x.a), code_scale(x.b),
                      to);
    };
  }
  Read operator()(const AccumulatorConcat&) const { return {}; }  // joined by the caller
  Read operator()(const AccumulatorMove&) const { return {}; }    // moved by the caller
  Read operator()(const DeferredFloats&) const { return {}; }     // computed by the caller
};

/// Restores NaN values: the ReLU of the kernels turns NaN into 0, but readers must be able to detect NaN.
void keep_nans(const StretchValues& plain, Tensor& out) {
  auto* to = out.mutable_data<float>(out.layout());
  visit_stretches(out, [&](std::int64_t begin, std::int64_t count) {
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
         !std::holds_alternative<AccumulatorMove>(x.value) && !x.is_deferred();
}

void StretchValues::operator()(std::int64_t begin, std::int64_t count, float* to, std::uint8_t* mask) const {
  read_(begin, count, to);
  if (relu_) relu(to, count, mask);
}

void accumulator_values(const Accumulator& x, Tensor& out, Tensor* mask) {
  auto* bits = static_cast<std::uint8_t*>(mask != nullptr ? mask->mutable_raw() : nullptr);
  auto* values = out.mutable_data<float>(out.layout());
  const StretchValues read(x);
  visit_stretches(out, [&](std::int64_t i, std::int64_t count) {
    read(i, count, values + i, bits != nullptr ? bits + i / 8 : nullptr);
  });
  // Only batch normalization can give NaN, so this pass is rare.
  if (x.relu && may_be_nan(x)) keep_nans(read, out);
}

}  // namespace fq::cpu
