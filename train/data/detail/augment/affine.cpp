#include <algorithm>
#include <cmath>
#include <numbers>

#include "fakequant/core/detail/check.h"
#include "fakequant/train/data/detail/random.h"
#include "fakequant/train/data/loader.h"

namespace fq {
namespace {

constexpr std::uint64_t kSeed = 0x6175676d656e74;  // apart from the streams that shuffle

/// From a place in the new image, relative to its centre, to one in the old image.
struct Warp {
  double xx = 1, xy = 0, yx = 0, yy = 1, x0 = 0, y0 = 0;
  bool identity = true;
};

/// All that is random about one image. Drawn in one order whatever the options are.
struct Draw {
  double shift_x, shift_y, rotation, scale, shear, cut_x, cut_y, flip;

  Draw(std::uint64_t seed, std::int64_t epoch, std::int64_t sample) {
    detail::Draws stream(seed ^ kSeed, static_cast<std::uint64_t>(epoch), static_cast<std::uint64_t>(sample));
    for (auto* value : {&shift_x, &shift_y, &rotation, &scale, &shear, &cut_x, &cut_y, &flip})
      *value = stream.symmetric();
  }
};

Warp make_warp(const Draw& draw, const AugmentOptions& options) {
  const double angle = draw.rotation * options.rotation * std::numbers::pi / 180;
  const double scale = 1 + draw.scale * options.scale, shear = draw.shear * options.shear;
  const double mirror = options.flip && draw.flip < 0 ? -1 : 1;
  const double c = std::cos(angle), s = std::sin(angle);
  const double tx = draw.shift_x * options.shift, ty = draw.shift_y * options.shift;
  Warp warp;  // the inverse of shift * rotation * scale * shear * mirror
  warp.xx = mirror * (c + shear * s) / scale;
  warp.xy = mirror * (s - shear * c) / scale;
  warp.yx = -s / scale;
  warp.yy = c / scale;
  warp.x0 = -(warp.xx * tx + warp.xy * ty);
  warp.y0 = -(warp.yx * tx + warp.yy * ty);
  warp.identity =
      warp.xx == 1 && warp.xy == 0 && warp.yx == 0 && warp.yy == 1 && warp.x0 == 0 && warp.y0 == 0;
  return warp;
}

struct Plane {
  std::int64_t height, width;
  float outside;

  [[nodiscard]] float at(const float* pixels, std::int64_t y, std::int64_t x) const {
    return 0 <= y && y < height && 0 <= x && x < width ? pixels[y * width + x] : outside;
  }

  [[nodiscard]] float sample(const float* pixels, double y, double x) const {
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

void check(const AugmentOptions& options) {
  for (const auto& [name, value] : {std::pair{"shift", options.shift},
                                    {"rotation", options.rotation},
                                    {"scale", options.scale},
                                    {"shear", options.shear}})
    FQ_CHECK(std::isfinite(value) && 0 <= value && value <= 1e6, "augment",
             "{} is {}: use 0 or a positive limit", name, value);
  FQ_CHECK(options.scale < 1, "augment", "scale is {}: use less than 1", options.scale);
  FQ_CHECK(0 <= options.cutout && options.cutout <= 1 << 20, "augment",
           "cutout is {}: use 0 or a side in pixels", options.cutout);
}

void augment(Tensor& images, std::span<const std::int64_t> samples, const AugmentOptions& options,
             std::uint64_t seed, std::int64_t epoch, const std::vector<float>& background) {
  check(options);
  FQ_CHECK(images.rank() == 4 && images.dtype() == DType::f32, "augment",
           "the images are {}: give f32 [N, C, H, W]", images.describe());
  const std::int64_t count = images.dim(0), channels = images.dim(1);
  FQ_CHECK(static_cast<std::int64_t>(samples.size()) == count, "augment",
           "there are {} samples for {} images", samples.size(), count);
  FQ_CHECK(static_cast<std::int64_t>(background.size()) == channels, "augment",
           "{} background values for {} channels", background.size(), channels);
  Plane plane{images.dim(2), images.dim(3), 0};
  const std::int64_t pixels = plane.height * plane.width;
  std::vector<float> old(static_cast<std::size_t>(pixels));
  float* at = images.mutable_data<float>();
  for (const auto sample : samples) {
    const Draw draw(seed, epoch, sample);
    const Warp warp = make_warp(draw, options);
    for (std::int64_t c = 0; c < channels; ++c, at += pixels) {
      plane.outside = background[static_cast<std::size_t>(c)];
      if (!warp.identity) {
        std::copy_n(at, pixels, old.begin());
        plane.warp(old.data(), warp, at);
      }
      if (options.cutout > 0) plane.cut(draw, options.cutout, at);
    }
  }
}

}  // namespace fq
