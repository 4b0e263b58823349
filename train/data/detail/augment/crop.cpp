#include <algorithm>
#include <cmath>

#include "fakequant/train/data/detail/augment/operations.h"

namespace fq::detail {
namespace {

// Tries of torchvision's RandomResizedCrop.get_params, before its central crop.
constexpr int kTries = 10;

struct Box {
  std::int64_t top, left, height, width;
};

std::int64_t whole(double value) { return static_cast<std::int64_t>(std::nearbyint(value)); }

/// Returns the largest centred box with an allowed ratio.
Box middle(std::int64_t height, std::int64_t width, const AugmentOptions& options) {
  const double ratio = static_cast<double>(width) / static_cast<double>(height);
  std::int64_t h = height, w = width;
  if (ratio < options.ratio_low) h = whole(static_cast<double>(width) / options.ratio_low);
  if (ratio > options.ratio_high) w = whole(static_cast<double>(height) * options.ratio_high);
  h = std::clamp<std::int64_t>(h, 1, height), w = std::clamp<std::int64_t>(w, 1, width);
  return {(height - h) / 2, (width - w) / 2, h, w};
}

Box draw_box(const AugmentedSample& image, const AugmentOptions& options) {
  Draws draws = image.draws("resized_crop");
  const double area = static_cast<double>(image.inner());
  for (int i = 0; i < kTries; ++i) {
    const double part = area * draws.uniform(options.resized_crop, options.resized_crop_most);
    // The logarithm of the ratio is uniform, so that 3/4 and 4/3 are equally likely.
    const double ratio = std::exp(draws.uniform(std::log(options.ratio_low), std::log(options.ratio_high)));
    const std::int64_t w = whole(std::sqrt(part * ratio)), h = whole(std::sqrt(part / ratio));
    if (w < 1 || h < 1 || w > image.width() || h > image.height()) continue;
    const auto top = draws.below(static_cast<std::uint64_t>(image.height() - h) + 1);
    const auto left = draws.below(static_cast<std::uint64_t>(image.width() - w) + 1);
    return {static_cast<std::int64_t>(top), static_cast<std::int64_t>(left), h, w};
  }
  return middle(image.height(), image.width(), options);
}

/// Bilinear source positions: maps `index` of `size` pixels to `part` source pixels, with pixel centres at
/// 1/2.
struct CropPlace {
  std::int64_t first, second;
  float share;  ///< weight of `second`

  CropPlace(std::int64_t index, std::int64_t part, std::int64_t size) {
    const double at =
        (static_cast<double>(index) + 0.5) * static_cast<double>(part) / static_cast<double>(size) - 0.5;
    // Pixels outside of the box are replaced by its edge.
    const double inside = std::max(at, 0.0);
    first = static_cast<std::int64_t>(inside);
    second = std::min(first + 1, part - 1);
    share = static_cast<float>(inside - static_cast<double>(first));
  }
};

}  // namespace

void change_by_resized_crop(AugmentedSample& image, const AugmentOptions& options) {
  const Box box = draw_box(image, options);
  const std::int64_t height = image.height(), width = image.width();
  for (std::int64_t c = 0; c < image.channels(); ++c) {
    const std::vector<float> old(image.plane(c), image.plane(c) + image.inner());
    const auto at = [&](std::int64_t y, std::int64_t x) {
      return old[static_cast<std::size_t>((box.top + y) * width + box.left + x)];
    };
    for (std::int64_t y = 0; y < height; ++y)
      for (std::int64_t x = 0; x < width; ++x) {
        const CropPlace v(y, box.height, height), u(x, box.width, width);
        const float upper = at(v.first, u.first) * (1 - u.share) + at(v.first, u.second) * u.share;
        const float lower = at(v.second, u.first) * (1 - u.share) + at(v.second, u.second) * u.share;
        image.plane(c)[y * width + x] = upper * (1 - v.share) + lower * v.share;
      }
  }
}

void change_by_crop(AugmentedSample& image, const AugmentOptions& options) {
  Draws draws = image.draws("crop");
  const auto pad = static_cast<std::int64_t>(options.crop);
  const auto limit = static_cast<std::uint64_t>(2 * pad + 1);
  // Equal to padding by `pad` on all sides and cropping the old size.
  const std::int64_t down = static_cast<std::int64_t>(draws.below(limit)) - pad;
  const std::int64_t right = static_cast<std::int64_t>(draws.below(limit)) - pad;
  const std::int64_t height = image.height(), width = image.width();
  for (std::int64_t c = 0; c < image.channels(); ++c) {
    const std::vector<float> old(image.plane(c), image.plane(c) + image.inner());
    for (std::int64_t y = 0; y < height; ++y)
      for (std::int64_t x = 0; x < width; ++x) {
        const std::int64_t v = y + down, u = x + right;
        const bool inside = 0 <= v && v < height && 0 <= u && u < width;
        image.plane(c)[y * width + x] =
            inside ? old[static_cast<std::size_t>(v * width + u)] : image.black[static_cast<std::size_t>(c)];
      }
  }
}

void change_by_vflip(AugmentedSample& image, const AugmentOptions& options) {
  if (image.draws("vflip").uniform() >= options.vflip) return;
  const std::int64_t height = image.height(), width = image.width();
  for (std::int64_t c = 0; c < image.channels(); ++c)
    for (std::int64_t y = 0; y < height / 2; ++y)
      std::swap_ranges(image.plane(c) + y * width, image.plane(c) + (y + 1) * width,
                       image.plane(c) + (height - 1 - y) * width);
}

}  // namespace fq::detail
