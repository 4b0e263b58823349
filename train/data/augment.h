#pragma once

/// Augmentation: random changes of training samples that keep their meaning, made by the loader.
///
///     LoaderOptions options{.augment = {.crop = 4, .hflip = 0.5, .mixup = 0.2}};
///
/// The changes of sample i are a function of (seed, epoch, i); mixing also depends on the neighbour in the
/// batch. Each kind of change has its own random stream. Changes run in the order of `augment_changes()`.
/// Pixels are f32 network inputs: black is the value of a stored zero, white the value of the brightest
/// stored pixel (Dataset::background, Dataset::white). Colour formulas are equal to torchvision's functions
/// for floats from 0 to 1.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fakequant/core/tensor.h"
#include "fakequant/train/data/dataset.h"

namespace fq {

/// Limits of each change; 0 disables it. Amounts are uniform in [-limit, limit] unless stated otherwise;
/// shares and probabilities are from 0 to 1. "Images" are samples [C, H, W], "signals" [C, L], "rows"
/// [features], "ids" samples of token ids.
struct AugmentOptions {
  /// Images: crops a part with a share of the area from `resized_crop` to `resized_crop_most` and a side
  /// ratio from `ratio_low` to `ratio_high`, and resizes it to the image size, bilinear (RandomResizedCrop).
  double resized_crop = 0, resized_crop_most = 1;
  double ratio_low = 0.75, ratio_high = 4.0 / 3;
  double crop = 0;      ///< images: whole pixels of black padding, then a random crop (RandomCrop)
  double shift = 0;     ///< images: pixels along each axis; signals: whole steps, filled with 0
  double rotation = 0;  ///< images: degrees, about the centre
  double scale = 0;     ///< images: fraction of the size, below 1; 0.1 gives 0.9 to 1.1
  double shear = 0;     ///< images: columns moved per row
  double hflip = 0;     ///< images: probability of mirroring left to right
  double vflip = 0;     ///< images: probability of mirroring upside down
  /// Images: number of operations, drawn from `randaugment_operations`, and their magnitude, 0 to 30 (Cubuk
  /// et al., arXiv:1909.13719).
  double randaugment = 0, randaugment_magnitude = 9;
  double brightness = 0;         ///< images: factors from max(0, 1 - limit) to 1 + limit
  double contrast = 0;           ///< images: factors like brightness, about the mean grey
  double saturation = 0;         ///< images of 3 channels: factors, about each pixel's grey
  double hue = 0;                ///< images of 3 channels: turns of the colour circle, up to 0.5
  double greyscale = 0;          ///< images of 3 channels: probability of becoming grey
  double blur = 0;               ///< images: Gaussian sigma from 0.1 to the limit, pixels; mirrors edges
  double gain = 0;               ///< signals: factors from 1 - limit to 1 + limit; limit below 1
  double reverse = 0;            ///< signals: probability of reversing the order
  double time_mask = 0;          ///< signals: longest span of steps that becomes 0 (SpecAugment)
  double noise = 0;              ///< Gaussian sigma; for images as a share of white minus black
  double drop = 0;               ///< rows and ids: probability that a value becomes 0
  double cutout = 0;             ///< images: side of one erased square at a random centre, whole pixels
  double mixup = 0, cutmix = 0;  ///< alpha of Beta(alpha, alpha), the distribution of shares (`mix`)

  [[nodiscard]] bool any() const noexcept;
  [[nodiscard]] bool mixes() const noexcept { return mixup != 0 || cutmix != 0; }
};

/// A number of AugmentOptions, and its allowed range.
struct AugmentNumber {
  const char* name;
  double AugmentOptions::*value;
  double lowest, highest;
  bool whole = false;
};

/// A named change. It runs if its first number is not 0.
struct AugmentChange {
  const char* name;
  std::vector<AugmentNumber> numbers;
  const char* help;  ///< units of the numbers, for example "PIXELS"
};

/// Returns all changes in execution order.
[[nodiscard]] std::vector<AugmentChange> augment_changes();
/// Returns the names of the operations of `randaugment`, which are torchvision's: translations up to 150/331
/// of a side, rotations up to 30 degrees, shears up to 0.3, factors up to 1 -+ 0.9, posterizing down to 4
/// bits, solarizing from white down. Warps are bilinear, and shears are about the centre.
[[nodiscard]] std::vector<std::string> randaugment_operations();

/// Throws ArgumentError for a number out of its range.
void check(const AugmentOptions& options);
/// Throws ArgumentError for a change that samples of this shape do not support, with the supported changes.
void check(const AugmentOptions& options, const Shape& sample, bool token_ids);

/// Changes f32 [N, ..], or i64 [N, ..] of token ids, in place; runs all changes except mixing. Sample i
/// changes by (seed, epoch, keys[i]) only, all channels in the same way. Positions outside an image become
/// `background[c]`. An empty `white` means 1. Throws ArgumentError for other shapes, dtypes and counts.
void augment(Tensor& samples, std::span<const std::int64_t> keys, const AugmentOptions& options,
             std::uint64_t seed, std::int64_t epoch, const std::vector<float>& background,
             const std::vector<float>& white = {});

/// Mixes every sample with the sample before it in the batch, the first with the last. mixup (Zhang et al.,
/// arXiv:1710.09412) adds lambda times the sample and 1 - lambda times the other. cutmix (Yun et al.,
/// arXiv:1905.04899) replaces a rectangle with a share of 1 - lambda of an image, or a span of a signal, by
/// the other sample; lambda becomes the share that remains. With both options, each sample chooses one at
/// random. Labels become f32 and are mixed in the same way: classes i64 [N] become shares [N, classes];
/// numbers (`classes` 0, or [N, K]) are averaged. Throws ArgumentError without labels, for labels with more
/// axes, and for token ids.
void mix(Batch& batch, std::span<const std::int64_t> keys, const AugmentOptions& options, std::uint64_t seed,
         std::int64_t epoch, std::int64_t classes);

}  // namespace fq
