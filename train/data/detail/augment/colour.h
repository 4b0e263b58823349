#pragma once

/// Functions of images with values from 0 (black) to 1 (white), [C, H, W], as torchvision has them for
/// floats. Factors of 1 leave an image as it is.

#include "fakequant/train/data/detail/augment/sample.h"

namespace fq::detail {

/// In the units of these functions as long as it lives, then in the network's again.
class UnitScope {
 public:
  explicit UnitScope(AugmentedSample& image);
  ~UnitScope();
  UnitScope(const UnitScope&) = delete;  // of one image
  UnitScope& operator=(const UnitScope&) = delete;

 private:
  AugmentedSample& image_;
};

/// factor * x.
void adjust_brightness(AugmentedSample& image, double factor);
/// From the mean of the image's greys.
void adjust_contrast(AugmentedSample& image, double factor);
/// From the grey of each pixel; nothing but for three channels.
void adjust_saturation(AugmentedSample& image, double factor);
/// From the image blurred by 3 x 3; edges, and images of 2 pixels or less, stay.
void adjust_sharpness(AugmentedSample& image, double factor);
/// `turns` of the circle; three channels.
void adjust_hue(AugmentedSample& image, double turns);
/// Grey in all three channels.
void to_grey(AugmentedSample& image);

/// Keeps so many of the upper bits of values in bytes.
void posterize(AugmentedSample& image, int bits);
/// 1 - x from the threshold on.
void solarize(AugmentedSample& image, double threshold);
/// Each channel's smallest becomes 0, its largest 1.
void autocontrast(AugmentedSample& image);
/// Each channel's histogram of bytes becomes flat.
void equalize(AugmentedSample& image);

}  // namespace fq::detail
