#include <algorithm>

#include "fakequant/train/data/detail/augment/operations.h"

namespace fq::detail {

void change_by_noise(AugmentedSample& sample, const AugmentOptions& options) {
  Draws draws = sample.draws("noise");
  for (std::int64_t i = 0; i < numel(sample.shape); ++i)
    sample.values[i] += static_cast<float>(options.noise * draws.normal());
}

// Sigma is a share of white minus black, because normalisation gives each channel another scale.
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
    // Id 0 is padding.
    if (sample.ids != nullptr)
      sample.ids[i] = 0;
    else
      sample.values[i] = 0;
  }
}

void change_by_time_shift(AugmentedSample& signal, const AugmentOptions& options) {
  const auto limit = static_cast<std::int64_t>(options.shift);
  const std::int64_t length = signal.inner();
  const auto drawn =
      static_cast<std::int64_t>(signal.draws("shift").below(static_cast<std::uint64_t>(2 * limit + 1))) -
      limit;
  // A positive shift moves the signal to later positions. Zeros fill the gap, also for a shift beyond the
  // length.
  const std::int64_t later = std::clamp(drawn, -length, length);
  for (std::int64_t c = 0; c < signal.channels(); ++c) {
    float* line = signal.plane(c);
    if (later >= 0) {
      std::copy_backward(line, line + length - later, line + length);
      std::fill_n(line, later, 0.0f);
    } else {
      std::copy(line - later, line + length, line);
      std::fill_n(line + length + later, -later, 0.0f);
    }
  }
}

void change_by_gain(AugmentedSample& signal, const AugmentOptions& options) {
  const auto factor = static_cast<float>(1 + options.gain * signal.draws("gain").symmetric());
  for (std::int64_t i = 0; i < numel(signal.shape); ++i) signal.values[i] *= factor;
}

void change_by_reversal(AugmentedSample& signal, const AugmentOptions& options) {
  if (signal.draws("reverse").uniform() >= options.reverse) return;
  for (std::int64_t c = 0; c < signal.channels(); ++c)
    std::reverse(signal.plane(c), signal.plane(c) + signal.inner());
}

void change_by_time_mask(AugmentedSample& signal, const AugmentOptions& options) {
  Draws draws = signal.draws("time_mask");
  const std::int64_t length = signal.inner();
  const auto most = std::min(static_cast<std::int64_t>(options.time_mask), length);
  // Masks the same span in all channels, as SpecAugment does for time (Park et al., arXiv:1904.08779).
  const auto wide = static_cast<std::int64_t>(draws.below(static_cast<std::uint64_t>(most) + 1));
  const auto begin = static_cast<std::int64_t>(draws.below(static_cast<std::uint64_t>(length - wide) + 1));
  for (std::int64_t c = 0; c < signal.channels(); ++c) std::fill_n(signal.plane(c) + begin, wide, 0.0f);
}

}  // namespace fq::detail
