#include "fakequant/core/backend/cpu/codes/accumulator_kernels.h"
#include "fakequant/core/backend/cpu/codes/accumulator_parts.h"
#include "fakequant/core/backend/cpu/codes/grid.h"
#include "fakequant/core/backend/cpu/codes/sum_kernels.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/error.h"

namespace fq::cpu {
namespace {

using Floats = std::vector<float>;

template <class T>
const T* pointer(const std::vector<T>& values) {
  return values.empty() ? nullptr : values.data();
}

/// What a pass over the sums reads for each channel; vectors are empty where there is nothing to read.
struct Parameters {
  std::vector<std::int32_t> bias;
  Floats scale, multiplier, shift, offset;

  /// By whom they are read: runs of channels, or one channel at a time.
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

float offset_of(const Grid& grid) { return static_cast<float>(grid.zero_point); }

Floats over(const Floats& values, float step) {
  Floats out = values;
  for (float& v : out) v = scalar::div_(v, step);
  return out;
}

/// One pass over sums of products, or of channels of them.
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
  /// One by one; `first` is the first element of a run, or of the channel.
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
  /// `begin` starts a byte of the mask.
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
    if (mask != nullptr) std::memset(mask, 0, static_cast<std::size_t>(out.mask.nbytes()));
    const SumPass pass{sums.data<std::int32_t>(sums.layout()),
                       parameters.grid(reader(), innermost ? run_width(view.channels) : 0),
                       out.codes.mutable_raw(), mask, out.codes.dtype()};
    if (innermost)
      for_blocks(RunBlocks(sums.numel(), view.channels),
                 [&](std::int64_t begin, std::int64_t end) { pass.runs(begin, end); });
    else
      for_runs(sums.numel(), view,
               [&](std::int64_t begin, std::int64_t end, std::int64_t c) { pass.channel(begin, end, c); });
  }
  /// f(begin, count, where their codes go)
  template <class F>
  void write(F&& f) const {
    auto* codes = static_cast<std::byte*>(out.codes.mutable_raw());
    auto* mask = mask_bytes();
    const DType dtype = out.codes.dtype();
    for_stretches(out.codes, [&](std::int64_t i, std::int64_t count) {
      f(i, count, CodesOut{codes + byte_size(dtype, i), dtype, mask != nullptr ? mask + i / 8 : nullptr});
    });
  }

  void operator()(const ProductSums& x) const {
    Parameters p;
    p.scale = scales_of(x);
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
      requantize_averages(values + i, count, row.scale, offset_of(grid), reader(), to);
    });
  }
  void operator()(const CodeAddition& x) const {
    const auto added = detail::addition_grid(scale_of(x.a), scale_of(x.b), row.scale, offset_of(x.a.grid),
                                             offset_of(x.b.grid), offset_of(grid));
    write([&](std::int64_t i, std::int64_t count, const CodesOut& to) {
      requantize_addition(codes_of(x.a, i), codes_of(x.b, i), count, added, reader(), to);
    });
  }
  void operator()(const AccumulatorConcat&) const {}  // joined by the caller
  void operator()(const AccumulatorMove&) const {}    // moved by the caller
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

}  // namespace fq::cpu
