#include <algorithm>

#include "fakequant/train/data/detail/augment/operations.h"

namespace fq::detail {

void change_by_noise(AugmentedSample& sample, const AugmentOptions& options) {
  Draws draws = sample.draws("noise");
  for (std::int64_t i = 0; i < numel(sample.shape); ++i)
    sample.values[i] += static_cast<float>(options.noise * draws.normal());
}

void change_by_noise_of_pixels(AugmentedSample& image, const AugmentOptions& options) {
  Draws draws = image.draws("noise");
  for (std::int64_t c = 0; c < image.channels(); ++c) {
    const auto channel = static_cast<std::size_t>(c);
    const double sigma = options.noise * (double(image.white[channel]) - double(image.black[channel]));
    for (std::int64_t i = 0; i < image.inner(); ++i)
      image.plane(c)[i] += static_cast<float>(sigma * draws.normal());
  }
}

void change_by_drop(AugmentedSample& sample, const AugmentOptions& options) {
  Draws draws = sample.draws("drop");
  for (std::int64_t i = 0; i < numel(sample.shape); ++i) {
    if (draws.uniform() >= options.drop) continue;
    if (sample.ids != nullptr)
      sample.ids[i] = 0;
    else
      sample.values[i] = 0;
  }
}

}  // namespace fq::detail
