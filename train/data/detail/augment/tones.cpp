#include <algorithm>
#include <array>
#include <cmath>

#include "fakequant/train/data/detail/augment/colour.h"

namespace fq::detail {
namespace {

int byte_of(float x) { return static_cast<int>(std::nearbyint(255 * std::clamp(x, 0.0f, 1.0f))); }

/// What each byte becomes; nothing where there are too few pixels to spread.
std::array<int, 256> flat_histogram(const float* plane, std::int64_t count) {
  std::array<std::int64_t, 256> histogram{};
  for (std::int64_t i = 0; i < count; ++i) ++histogram[static_cast<std::size_t>(byte_of(plane[i]))];
  const auto last = std::find_if(histogram.rbegin(), histogram.rend(), [](auto n) { return n != 0; });
  const std::int64_t step = last == histogram.rend() ? 0 : (count - *last) / 255;
  std::array<int, 256> out{};
  std::int64_t below = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = step == 0
                 ? static_cast<int>(i)
                 : static_cast<int>(std::min<std::int64_t>((below + (i == 0 ? 0 : step / 2)) / step, 255));
    below += histogram[i];
  }
  return out;
}

}  // namespace

void posterize(AugmentedSample& image, int bits) {
  const int mask = 0xff & ~((1 << (8 - bits)) - 1);
  for (std::int64_t i = 0; i < numel(image.shape); ++i)
    image.values[i] = static_cast<float>(byte_of(image.values[i]) & mask) / 255;
}

void solarize(AugmentedSample& image, double threshold) {
  for (std::int64_t i = 0; i < numel(image.shape); ++i)
    if (static_cast<double>(image.values[i]) >= threshold) image.values[i] = 1 - image.values[i];
}

void autocontrast(AugmentedSample& image) {
  for (std::int64_t c = 0; c < image.channels(); ++c) {
    const auto [low, high] = std::minmax_element(image.plane(c), image.plane(c) + image.inner());
    const float least = *low, range = *high - *low;
    if (range == 0) continue;
    for (std::int64_t i = 0; i < image.inner(); ++i)
      image.plane(c)[i] = std::clamp((image.plane(c)[i] - least) / range, 0.0f, 1.0f);
  }
}

void equalize(AugmentedSample& image) {
  for (std::int64_t c = 0; c < image.channels(); ++c) {
    const auto table = flat_histogram(image.plane(c), image.inner());
    for (std::int64_t i = 0; i < image.inner(); ++i)
      image.plane(c)[i] =
          static_cast<float>(table[static_cast<std::size_t>(byte_of(image.plane(c)[i]))]) / 255;
  }
}

}  // namespace fq::detail
