#include "fakequant/core/cpu/requantize.h"

namespace fq::cpu {
namespace {

/// Scales of every channel, multiplied out where one serves them all.
std::vector<float> channel_scales(const ProductSums& x, std::int64_t channels) {
  const auto* scale = x.scale.data<float>();
  if (x.scale.numel() != 1) return {scale, scale + x.scale.numel()};
  return std::vector<float>(static_cast<std::size_t>(channels), scale[0]);
}

struct SumRun {
  const std::int32_t* sums;
  SumGrid grid;  // pointers to channel 0
  void* codes;
  std::uint8_t* mask;
  DType dtype;

  [[nodiscard]] SumGrid at(std::int64_t channel) const {
    SumGrid g = grid;
    g.bias = g.bias == nullptr ? nullptr : g.bias + channel;
    g.multiplier += channel;
    g.scale += channel;
    return g;
  }
  void scalar_run(std::int64_t begin, std::int64_t end, std::int64_t channel) const {
    for (std::int64_t i = begin; i < end; ++i) {
      const SumGrid g = at(channel + (grid.innermost ? i - begin : 0));
      const auto a = static_cast<float>(sums[i] + (g.bias != nullptr ? *g.bias : 0));
      store_code(codes, dtype, i, scalar::requantize_code(a, *g.multiplier, g.lower, g.upper));
      if (mask == nullptr) continue;
      const float v = scalar::dequantize_code(a, *g.scale);
      set_bit(mask, i,
              g.open_below ? scalar::mask_open_below(v, 0.0f, g.amax)
                           : scalar::mask_closed(v, g.mask_lower, g.amax));
    }
  }
  template <class Code>
  void vector_run(std::int64_t begin, std::int64_t end, std::int64_t channel) const {
    const std::int64_t start = std::min(end, (begin + 7) / 8 * 8);
    scalar_run(begin, start, channel);
    const auto moved = [&](std::int64_t i) { return channel + (grid.innermost ? i - begin : 0); };
    if (start == end) return;
    const std::int64_t done =
        requantize(sums + start, end - start, at(moved(start)), static_cast<Code*>(codes) + start,
                   mask != nullptr ? mask + start / 8 : nullptr);
    if (start + done < end) scalar_run(start + done, end, moved(start + done));
  }
  void operator()(std::int64_t begin, std::int64_t end, std::int64_t channel) const {
    if (dtype == DType::i8) return vector_run<std::int8_t>(begin, end, channel);
    if (dtype == DType::u8) return vector_run<std::uint8_t>(begin, end, channel);
    scalar_run(begin, end, channel);
  }
};

}  // namespace

void requantize_products(const ProductSums& x, const GridRow& row, bool relu, QuantizedTensor& out) {
  const auto view = Channels::of(x.sums.shape(), x.sums.layout(), x.axis);
  const auto scale = channel_scales(x, view.channels);
  std::vector<float> multiplier = scale;
  for (float& m : multiplier) m = scalar::div_(m, row.scale);
  auto* mask = static_cast<std::uint8_t*>(out.mask.defined() ? out.mask.mutable_raw() : nullptr);
  if (mask != nullptr) std::memset(mask, 0, static_cast<std::size_t>(out.mask.nbytes()));
  const SumGrid grid{x.bias.defined() ? x.bias.data<std::int32_t>() : nullptr,
                     multiplier.data(),
                     scale.data(),
                     view.inner == 1,
                     relu,
                     relu ? std::max(row.lower, 0.0f) : row.lower,
                     row.upper,
                     row.amax,
                     row.mask_lower};
  for_segments(x.sums.numel(), view,
               SumRun{x.sums.data<std::int32_t>(x.sums.layout()), grid, out.codes.mutable_raw(), mask,
                      out.codes.dtype()});
}

}  // namespace fq::cpu
