#pragma once

/// Colour functions for images [C, H, W] with values from 0 (black) to 1 (white), equal to torchvision's
/// functions for floats. A factor of 1 does not change the image.

#include "fakequant/train/data/detail/augment/sample.h"

namespace fq::detail {

/// Converts an image to values from 0 to 1, and back to the network's values at the end of the scope.
class UnitScope {
 public:
  explicit UnitScope(AugmentedSample& image);
  ~UnitScope();
  UnitScope(const UnitScope&) = delete;  // tied to its block
  UnitScope& operator=(const UnitScope&) = delete;

 private:
  AugmentedSample& image_;
};

/// Multiplies x by `factor`.
void adjust_brightness(AugmentedSample& image, double factor);
/// Scales the distance from the image's mean grey.
void adjust_contrast(AugmentedSample& image, double factor);
/// Scales the distance from each pixel's grey. Changes images of three channels only.
void adjust_saturation(AugmentedSample& image, double factor);
/// Scales the distance from the image blurred by 3 x 3. Does not change edges and images of 2 pixels or less.
void adjust_sharpness(AugmentedSample& image, double factor);
/// Rotates the hue by `turns` of the colour circle. Needs three channels.
void adjust_hue(AugmentedSample& image, double turns);
/// Sets all three channels to the grey of the pixel.
void to_grey(AugmentedSample& image);

/// Keeps the upper `bits` bits of values converted to bytes.
void posterize(AugmentedSample& image, int bits);
/// Replaces x by 1 - x where x is at or above `threshold`.
void solarize(AugmentedSample& image, double threshold);
/// Stretches each channel to the range 0 to 1.
void autocontrast(AugmentedSample& image);
/// Flattens the byte histogram of each channel.
void equalize(AugmentedSample& image);

}  // namespace fq::detail
