#include <algorithm>

#include "fakequant/train/data/detail/augment/colour.h"
#include "fakequant/train/data/detail/augment/operations.h"

namespace fq::detail {
namespace {

double factor(const AugmentedSample& image, const char* purpose, double limit) {
  return image.draws(purpose).uniform(std::max(0.0, 1 - limit), 1 + limit);
}

}  // namespace

void change_brightness(AugmentedSample& image, const AugmentOptions& options) {
  const UnitScope units(image);
  adjust_brightness(image, factor(image, "brightness", options.brightness));
}

void change_contrast(AugmentedSample& image, const AugmentOptions& options) {
  const UnitScope units(image);
  adjust_contrast(image, factor(image, "contrast", options.contrast));
}

void change_saturation(AugmentedSample& image, const AugmentOptions& options) {
  const UnitScope units(image);
  adjust_saturation(image, factor(image, "saturation", options.saturation));
}

void change_hue(AugmentedSample& image, const AugmentOptions& options) {
  const UnitScope units(image);
  adjust_hue(image, image.draws("hue").symmetric() * options.hue);
}

void change_to_grey(AugmentedSample& image, const AugmentOptions& options) {
  if (image.draws("greyscale").uniform() >= options.greyscale) return;
  const UnitScope units(image);
  to_grey(image);
}

}  // namespace fq::detail
