#include "fakequant/train/ptq/detail/patches.h"

#include <algorithm>

#include "fakequant/train/ptq/detail/transposed.h"

namespace fq::ptq {
namespace {

/// A 1-D convolution is one of height 1.
struct Geometry {
  std::int64_t images, channels, height, width;
  std::int64_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
  std::int64_t out_h, out_w;
};

std::int64_t option(const std::vector<std::int64_t>& list, bool vertical, bool flat, std::int64_t fallback,
                    std::int64_t of_height_one) {
  if (flat && vertical) return of_height_one;
  if (list.empty()) return fallback;
  return vertical ? list.front() : list.back();
}

Geometry geometry(const WeightedLayer& layer, const Shape& x) {
  const bool flat = x.size() == 3;
  const Shape w = layer.weight.shape();
  const auto& o = layer.options;
  Geometry g{.images = x[0],
             .channels = w[1],
             .height = flat ? 1 : x[2],
             .width = x.back(),
             .kernel_h = flat ? 1 : w[2],
             .kernel_w = w.back(),
             .stride_h = option(o.stride, true, flat, 1, 1),
             .stride_w = option(o.stride, false, flat, 1, 1),
             .pad_h = option(o.padding, true, flat, 0, 0),
             .pad_w = option(o.padding, false, flat, 0, 0),
             .dilation_h = option(o.dilation, true, flat, 1, 1),
             .dilation_w = option(o.dilation, false, flat, 1, 1),
             .out_h = 0,
             .out_w = 0};
  g.out_h = (g.height + 2 * g.pad_h - g.dilation_h * (g.kernel_h - 1) - 1) / g.stride_h + 1;
  g.out_w = (g.width + 2 * g.pad_w - g.dilation_w * (g.kernel_w - 1) - 1) / g.stride_w + 1;
  return g;
}

/// The position taken as the i-th of `taken` in an image; images begin at different ones.
std::int64_t position(const Geometry& g, std::int64_t image, std::int64_t i, std::int64_t taken) {
  const std::int64_t all = g.out_h * g.out_w;
  return (i * all / taken + image * (taken < all ? 7 : 0)) % all;
}

/// The values that tap (channel, kh, kw) sees at the chosen positions.
void fill_tap(const Geometry& g, const float* plane, std::int64_t plane_stride, std::int64_t kh,
              std::int64_t kw, std::int64_t taken, float* out) {
  for (std::int64_t image = 0; image < g.images; ++image)
    for (std::int64_t i = 0; i < taken; ++i) {
      const std::int64_t p = position(g, image, i, taken);
      const std::int64_t row = p / g.out_w * g.stride_h - g.pad_h + kh * g.dilation_h;
      const std::int64_t column = p % g.out_w * g.stride_w - g.pad_w + kw * g.dilation_w;
      const bool inside = row >= 0 && row < g.height && column >= 0 && column < g.width;
      *out++ = inside ? plane[image * plane_stride + row * g.width + column] : 0.0f;
    }
}

}  // namespace

Tensor patches(const WeightedLayer& layer, const Tensor& x, std::int64_t group, std::int64_t limit) {
  if (layer.linear()) return transposed(x, layer.columns());
  const Geometry g = geometry(layer, x.shape());
  const std::int64_t taken = std::min(limit, g.out_h * g.out_w), plane = g.height * g.width;
  Tensor out = Tensor::empty({layer.columns(), g.images * taken});
  auto* to = out.mutable_data<float>();
  const auto* from = x.data<float>() + group * g.channels * plane;
  for (std::int64_t c = 0; c < g.channels; ++c)
    for (std::int64_t kh = 0; kh < g.kernel_h; ++kh)
      for (std::int64_t kw = 0; kw < g.kernel_w; ++kw, to += g.images * taken)
        fill_tap(g, from + c * plane, layer.channels() * plane, kh, kw, taken, to);
  return out;
}

}  // namespace fq::ptq
