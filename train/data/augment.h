#pragma once

/// Augmentation: random changes of training samples that keep their meaning, made while they are read.
///
///     LoaderOptions options{.augment = {.crop = 4, .hflip = 0.5, .mixup = 0.2}};
///
/// What changes sample i is a function of (seed, epoch, i) alone, and of mixing also of its neighbour in the
/// batch; each kind of change draws from a stream of its own. Changes are made in the order of
/// `augment_changes()`. Pixels are f32 in the network's units: black is what a stored zero becomes, white
/// what the brightest stored pixel becomes (Dataset::background, Dataset::white), and formulas of colour are
/// those of torchvision's functions of floats from 0 to 1.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fakequant/core/tensor.h"
#include "fakequant/train/data/dataset.h"

namespace fq {

/// How far each change may go; 0 leaves it out. Amounts are uniform in [-limit, limit] unless said otherwise,
/// shares and probabilities are from 0 to 1. "Images" are samples [C, H, W], "signals" [C, L], "rows"
/// [features], "ids" samples of token ids.
struct AugmentOptions {
  /// Images: a part of that share of the area, `resized_crop` to `resized_crop_most`, with sides in a ratio
  /// between `ratio_low` and `ratio_high`, is made as large as the image, bilinear: RandomResizedCrop.
  double resized_crop = 0, resized_crop_most = 1;
  double ratio_low = 0.75, ratio_high = 4.0 / 3;
  double crop = 0;      ///< images: whole pixels of black put around, then cut to size anywhere: RandomCrop
  double shift = 0;     ///< images: pixels, along each axis; signals: whole steps, 0 comes in
  double rotation = 0;  ///< images: degrees, about the centre
  double scale = 0;     ///< images: fraction of the size: 0.1 gives 0.9 to 1.1; below 1
  double shear = 0;     ///< images: columns moved per row
  double hflip = 0;     ///< images: the probability of being mirrored left to right
  double vflip = 0;     ///< images: of being mirrored upside down
  /// Images: so many operations, drawn from `randaugment_operations`, of a magnitude of 0 to 30 (Cubuk et
  /// al., arXiv:1909.13719).
  double randaugment = 0, randaugment_magnitude = 9;
  double brightness = 0;  ///< images: factors from max(0, 1 - limit) to 1 + limit
  double contrast = 0;    ///< images: the same, about the mean grey
  double saturation = 0;  ///< images of 3 channels: the same, about each pixel's grey
  double hue = 0;         ///< images of 3 channels: turns of the circle of hues, up to 0.5
  double greyscale = 0;   ///< images of 3 channels: the probability of becoming grey
  double blur = 0;        ///< images: Gaussian of a sigma from 0.1 to the limit, pixels; edges mirrored
  double gain = 0;        ///< signals: factors from 1 - limit to 1 + limit; below 1
  double reverse = 0;     ///< signals: the probability of running backwards
  double time_mask = 0;   ///< signals: a span of at most so many steps becomes 0 (SpecAugment)
  double noise = 0;       ///< sigma of Gaussian noise: of images, of white less black; else as it is
  double drop = 0;        ///< rows and ids: the probability of each value to become 0
  double cutout = 0;      ///< images: side of one erased square, whole pixels; its centre is anywhere
  double mixup = 0, cutmix = 0;  ///< alpha of Beta(alpha, alpha), of which shares are drawn: `mix`

  [[nodiscard]] bool any() const noexcept;
  [[nodiscard]] bool mixes() const noexcept { return mixup != 0 || cutmix != 0; }
};

/// A number of AugmentOptions, and what it may be.
struct AugmentNumber {
  const char* name;
  double AugmentOptions::*value;
  double lowest, highest;
  bool whole = false;
};

/// A change by its name; it is made where the first of its numbers is not 0.
struct AugmentChange {
  const char* name;
  std::vector<AugmentNumber> numbers;
  const char* help;  ///< what the numbers are, as "PIXELS"
};

/// All that there are, in the order in which they are made.
[[nodiscard]] std::vector<AugmentChange> augment_changes();
/// Those that `randaugment` draws from: torchvision's, translations up to 150/331 of a side, rotations up to
/// 30 degrees, shears up to 0.3, factors up to 1 -+ 0.9, posterizing down to 4 bits, solarizing from white
/// down. Warps are bilinear, shears about the centre.
[[nodiscard]] std::vector<std::string> randaugment_operations();

/// Throws ArgumentError for a number out of its range.
void check(const AugmentOptions& options);
/// Throws ArgumentError for a change that samples of that shape do not have, naming those that they have.
void check(const AugmentOptions& options, const Shape& sample, bool token_ids);

/// Changes f32 [N, ..], or i64 [N, ..] of token ids, in place, all but mixing. Sample i changes by (seed,
/// epoch, keys[i]) alone, its channels alike. What was outside of an image becomes `background[c]`; `white`
/// is 1 where it is empty. Throws ArgumentError for other shapes, dtypes and counts.
void augment(Tensor& samples, std::span<const std::int64_t> keys, const AugmentOptions& options,
             std::uint64_t seed, std::int64_t epoch, const std::vector<float>& background,
             const std::vector<float>& white = {});

/// Mixes every sample with the one before it in the batch, the first with the last. mixup (Zhang et al.,
/// arXiv:1710.09412): lambda times the one and 1 - lambda times the other; cutmix (Yun et al.,
/// arXiv:1905.04899): a rectangle of 1 - lambda of an image, or a span of a signal, is that of the other, and
/// lambda becomes what is left; with both, either by a coin. Labels are mixed alike, f32: classes i64 [N]
/// become shares [N, classes]; with `classes` 0, and of [N, K], numbers are averaged. Throws ArgumentError
/// without labels, for labels of places, [N, ..] of more axes, and for token ids.
void mix(Batch& batch, std::span<const std::int64_t> keys, const AugmentOptions& options, std::uint64_t seed,
         std::int64_t epoch, std::int64_t classes);

}  // namespace fq
