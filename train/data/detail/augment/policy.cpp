#include <cmath>

#include "fakequant/train/data/detail/augment/colour.h"
#include "fakequant/train/data/detail/augment/operations.h"

namespace fq::detail {
namespace {

// RandAugment's scale of magnitudes (Cubuk et al., arXiv:1909.13719), as in torchvision.
constexpr double kMostMagnitude = 30;

// Applies a function of colour.h, which expects values from 0 to 1.
void apply_in_units(AugmentedSample& image, double amount, void (*change)(AugmentedSample&, double)) {
  const UnitScope units(image);
  change(image, amount);
}

void rotate(AugmentedSample& image, double degrees) {
  const double angle = degrees * std::numbers::pi / 180, c = std::cos(angle), s = std::sin(angle);
  warp(image, {.xx = c, .xy = s, .yx = -s, .yy = c});
}

/// An operation of the policy. `amount` is from -largest to largest, or from 0 if the operation has no sign.
struct Step {
  const char* name;
  double largest;
  bool has_sign;
  void (*make)(AugmentedSample& image, double amount);
};

// Operations and largest amounts of torchvision's RandAugment. Translations are relative to the image size.
constexpr Step kSteps[] = {
    {"identity", 0, false, [](AugmentedSample&, double) {}},
    {"shear_x", 0.3, true, [](AugmentedSample& x, double a) { warp(x, {.xy = -a}); }},
    {"shear_y", 0.3, true, [](AugmentedSample& x, double a) { warp(x, {.yx = -a}); }},
    {"translate_x", 150.0 / 331, true,
     [](AugmentedSample& x, double a) { warp(x, {.x0 = -std::trunc(a * static_cast<double>(x.width()))}); }},
    {"translate_y", 150.0 / 331, true,
     [](AugmentedSample& x, double a) { warp(x, {.y0 = -std::trunc(a * static_cast<double>(x.height()))}); }},
    {"rotate", 30, true, rotate},
    {"brightness", 0.9, true,
     [](AugmentedSample& x, double a) { apply_in_units(x, 1 + a, adjust_brightness); }},
    {"color", 0.9, true, [](AugmentedSample& x, double a) { apply_in_units(x, 1 + a, adjust_saturation); }},
    {"contrast", 0.9, true, [](AugmentedSample& x, double a) { apply_in_units(x, 1 + a, adjust_contrast); }},
    {"sharpness", 0.9, true,
     [](AugmentedSample& x, double a) { apply_in_units(x, 1 + a, adjust_sharpness); }},
    {"posterize", 4, false,
     [](AugmentedSample& x, double a) {
       // 8 bits would still round the pixels to bytes: no bits lost must not change the image.
       if (const int lost = static_cast<int>(std::nearbyint(a)); lost > 0)
         apply_in_units(x, 8 - lost,
                        [](AugmentedSample& y, double bits) { posterize(y, static_cast<int>(bits)); });
     }},
    {"solarize", 1, false,
     [](AugmentedSample& x, double a) {
       if (a > 0) apply_in_units(x, 1 - a, solarize);
     }},
    {"autocontrast", 0, false,
     [](AugmentedSample& x, double) {
       apply_in_units(x, 0, [](AugmentedSample& y, double) { autocontrast(y); });
     }},
    {"equalize", 0, false,
     [](AugmentedSample& x, double) {
       apply_in_units(x, 0, [](AugmentedSample& y, double) { equalize(y); });
     }},
};

}  // namespace

void change_by_randaugment(AugmentedSample& image, const AugmentOptions& options) {
  Draws draws = image.draws("randaugment");
  for (int i = 0; i < static_cast<int>(options.randaugment); ++i) {
    const Step& step = kSteps[draws.below(std::size(kSteps))];
    // The sign is drawn for every operation, so that later draws do not depend on the operation.
    const double sign = draws.symmetric() < 0 && step.has_sign ? -1 : 1;
    step.make(image, sign * step.largest * options.randaugment_magnitude / kMostMagnitude);
  }
}

}  // namespace fq::detail

namespace fq {

std::vector<std::string> randaugment_operations() {
  std::vector<std::string> names;
  for (const auto& step : detail::kSteps) names.emplace_back(step.name);
  return names;
}

}  // namespace fq
