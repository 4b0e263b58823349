#include "fakequant/core/backend/cpu/codes/requantize.h"

#include "fakequant/core/blocks/detail/channel_runs.h"
#include "fakequant/core/numerics/detail/sum_formulas.h"

namespace fq::cpu {
namespace {

using Floats = std::vector<float>;

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
};

Floats over(const Floats& values, float step) {
  Floats out = values;
  for (float& v : out) v = scalar::div_(v, step);
  return out;
}

template <class T>
const T* pointer(const std::vector<T>& values) {
  return values.empty() ? nullptr : values.data();
}

SumGrid grid_of(const Parameters& p, const GridRow& row, bool relu, std::int64_t width) {
  const auto reader = detail::sum_reader(row, relu);
  return {pointer(p.bias), pointer(p.multiplier), pointer(p.scale), pointer(p.offset), pointer(p.shift),
          width,           reader.open,           reader.lower,     reader.upper,      reader.amax,
          reader.below};
}

struct SumPass {
  const std::int32_t* sums;
  SumGrid grid;  // pointers to channel 0
  void* codes;
  std::uint8_t* mask;
  DType dtype;

  [[nodiscard]] SumGrid at(std::int64_t channel) const {
    SumGrid g = grid;
    for (const float** p : {&g.multiplier, &g.scale, &g.offset, &g.shift})
      if (*p != nullptr) *p += channel;
    if (g.bias != nullptr) g.bias += channel;
    return g;
  }
  /// One by one; `first` is the first element of a run, or of the channel.
  void rest(std::int64_t first, std::int64_t begin, std::int64_t end, const SumGrid& g) const {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t c = g.width == 0 ? 0 : (i - first) % g.width;
      const auto a = static_cast<float>(sums[i] + (g.bias != nullptr ? g.bias[c] : 0));
      const bool plain = g.shift == nullptr;
      store_code(codes, dtype, i,
                 plain ? scalar::requantize_code(a, g.multiplier[c], g.lower, g.upper)
                       : scalar::normalized_code(a, g.multiplier[c], g.offset[c], g.lower, g.upper));
      if (mask == nullptr) continue;
      const float v =
          plain ? scalar::dequantize_code(a, g.scale[c]) : scalar::normalized_sum(a, g.scale[c], g.shift[c]);
      set_bit(mask, i,
              g.open_below ? scalar::mask_open_below(v, 0.0f, g.amax)
                           : scalar::mask_closed(v, g.mask_lower, g.amax));
    }
  }
  /// `begin` starts a byte of the mask.
  std::int64_t vectors(std::int64_t begin, std::int64_t end, const SumGrid& g) const {
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

void requantize_sums(const Tensor& sums, int axis, Parameters parameters, const GridRow& row, bool relu,
                     QuantizedTensor& out) {
  const auto view = Channels::of(sums.shape(), sums.layout(), axis);
  const bool innermost = view.inner == 1;
  if (innermost) parameters.repeat(view.channels);
  auto* mask = static_cast<std::uint8_t*>(out.mask.defined() ? out.mask.mutable_raw() : nullptr);
  if (mask != nullptr) std::memset(mask, 0, static_cast<std::size_t>(out.mask.nbytes()));
  const SumPass pass{sums.data<std::int32_t>(sums.layout()),
                     grid_of(parameters, row, relu, innermost ? run_width(view.channels) : 0),
                     out.codes.mutable_raw(), mask, out.codes.dtype()};
  if (innermost)
    for_blocks(RunBlocks(sums.numel(), view.channels),
               [&](std::int64_t begin, std::int64_t end) { pass.runs(begin, end); });
  else
    for_runs(sums.numel(), view,
             [&](std::int64_t begin, std::int64_t end, std::int64_t c) { pass.channel(begin, end, c); });
}

}  // namespace

void requantize_products(const ProductSums& x, const GridRow& row, bool relu, QuantizedTensor& out) {
  const std::int64_t channels = Channels::of(x.sums.shape(), x.sums.layout(), x.axis).channels;
  Parameters p;
  p.scale = x.scale.to_vector<float>();
  if (p.scale.size() == 1) p.scale.assign(static_cast<std::size_t>(channels), p.scale[0]);
  p.multiplier = over(p.scale, row.scale);
  if (x.bias.defined()) p.bias = x.bias.to_vector<std::int32_t>();
  requantize_sums(x.sums, x.axis, std::move(p), row, relu, out);
}

void requantize_normalized(const NormalizedSums& x, const GridRow& row, bool relu, QuantizedTensor& out) {
  Parameters p;
  p.scale = x.factor.to_vector<float>();
  p.shift = x.shift.to_vector<float>();
  p.multiplier = over(p.scale, row.scale);
  p.offset = over(p.shift, row.scale);
  requantize_sums(x.sums, x.axis, std::move(p), row, relu, out);
}

}  // namespace fq::cpu
