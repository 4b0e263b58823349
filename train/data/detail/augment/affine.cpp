#include <algorithm>
#include <cmath>
#include <numbers>

#include "fakequant/train/data/detail/augment/operations.h"

namespace fq::detail {
namespace {

constexpr std::uint64_t kSeed = 0x6175676d656e74;  // separates the draws from shuffling

/// Random numbers of one warp and its cutout. They are drawn in the same order for all options.
struct Draw {
  double shift_x, shift_y, rotation, scale, shear, cut_x, cut_y, flip;

  explicit Draw(const AugmentedSample& sample) {
    Draws stream(sample.seed ^ kSeed, static_cast<std::uint64_t>(sample.epoch),
                 static_cast<std::uint64_t>(sample.key));
    for (auto* value : {&shift_x, &shift_y, &rotation, &scale, &shear, &cut_x, &cut_y, &flip})
      *value = stream.symmetric();
  }
};

Warp make_warp(const Draw& draw, const AugmentOptions& options) {
  const double angle = draw.rotation * options.rotation * std::numbers::pi / 180;
  const double scale = 1 + draw.scale * options.scale, shear = draw.shear * options.shear;
  // flip is uniform in [-1, 1): it is below 2p - 1 with probability p.
  const double mirror = draw.flip < 2 * options.hflip - 1 ? -1 : 1;
  const double c = std::cos(angle), s = std::sin(angle);
  const double tx = draw.shift_x * options.shift, ty = draw.shift_y * options.shift;
  Warp warp;  // the inverse of shift * rotation * scale * shear * mirror
  warp.xx = mirror * (c + shear * s) / scale;
  warp.xy = mirror * (s - shear * c) / scale;
  warp.yx = -s / scale;
  warp.yy = c / scale;
  warp.x0 = -(warp.xx * tx + warp.xy * ty);
  warp.y0 = -(warp.yx * tx + warp.yy * ty);
  return warp;
}

// One channel. Positions outside have the value `outside`.
struct Plane {
  std::int64_t height, width;
  float outside;

  [[nodiscard]] float at(const float* pixels, std::int64_t y, std::int64_t x) const {
    return 0 <= y && y < height && 0 <= x && x < width ? pixels[y * width + x] : outside;
  }

  // Bilinear interpolation at a position between pixels.
  [[nodiscard]] float sample(const float* pixels, double y, double x) const {
    // Clamps far positions, which would overflow the integer indices.
    x = std::clamp(x, -2.0, static_cast<double>(width) + 1),
    y = std::clamp(y, -2.0, static_cast<double>(height) + 1);
    const double left = std::floor(x), top = std::floor(y);
    const auto i = static_cast<std::int64_t>(top), j = static_cast<std::int64_t>(left);
    const auto fx = static_cast<float>(x - left), fy = static_cast<float>(y - top);
    const float upper = at(pixels, i, j) * (1 - fx) + at(pixels, i, j + 1) * fx;
    const float lower = at(pixels, i + 1, j) * (1 - fx) + at(pixels, i + 1, j + 1) * fx;
    return upper * (1 - fy) + lower * fy;
  }

  void warp(const float* from, const Warp& w, float* to) const {
    // The map is relative to the centre of the image.
    const double cy = static_cast<double>(height - 1) / 2, cx = static_cast<double>(width - 1) / 2;
    for (std::int64_t y = 0; y < height; ++y)
      for (std::int64_t x = 0; x < width; ++x) {
        const double v = static_cast<double>(y) - cy, u = static_cast<double>(x) - cx;
        *to++ = sample(from, w.yx * u + w.yy * v + w.y0 + cy, w.xx * u + w.xy * v + w.x0 + cx);
      }
  }

  void cut(const Draw& draw, std::int64_t side, float* pixels) const {
    const auto top = static_cast<std::int64_t>((draw.cut_y + 1) / 2 * static_cast<double>(height)) - side / 2;
    const auto left = static_cast<std::int64_t>((draw.cut_x + 1) / 2 * static_cast<double>(width)) - side / 2;
    for (std::int64_t y = std::max<std::int64_t>(top, 0); y < std::min(top + side, height); ++y)
      for (std::int64_t x = std::max<std::int64_t>(left, 0); x < std::min(left + side, width); ++x)
        pixels[y * width + x] = outside;
  }
};

}  // namespace

void warp(AugmentedSample& image, const Warp& how) {
  if (how.identity()) return;
  Plane plane{image.height(), image.width(), 0};
  std::vector<float> old(static_cast<std::size_t>(image.inner()));
  for (std::int64_t c = 0; c < image.channels(); ++c) {
    // A transparent border has the network's value of black, not 0: samples are normalised.
    plane.outside = image.black[static_cast<std::size_t>(c)];
    std::copy_n(image.plane(c), image.inner(), old.begin());
    plane.warp(old.data(), how, image.plane(c));
  }
}

void change_by_warp(AugmentedSample& sample, const AugmentOptions& options) {
  warp(sample, make_warp(Draw(sample), options));
}

void change_by_cutout(AugmentedSample& sample, const AugmentOptions& options) {
  // Equal to the numbers in change_by_warp, which uses the other fields.
  const Draw draw(sample);
  for (std::int64_t c = 0; c < sample.channels(); ++c)
    Plane{sample.height(), sample.width(), sample.black[static_cast<std::size_t>(c)]}.cut(
        draw, static_cast<std::int64_t>(options.cutout), sample.plane(c));
}

}  // namespace fq::detail
