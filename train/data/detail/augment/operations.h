#pragma once

/// Table of augmentation operations. To add one, add a row to the table in operations.cpp, a function, and a
/// field of AugmentOptions.

#include <span>

#include "fakequant/train/data/detail/augment/sample.h"

namespace fq::detail {

/// Changes one sample in place.
using Change = void (*)(AugmentedSample& sample, const AugmentOptions& options);

/// Functions of one operation by kind of sample; null if the operation does not support the kind.
struct Changes {
  Change image = nullptr, signal = nullptr, row = nullptr, ids = nullptr, other = nullptr;

  [[nodiscard]] Change of(SampleKind kind) const;
};

struct Operation {
  AugmentChange change;
  Changes make;
  bool colours = false;  ///< requires three channels
  bool pixels = false;   ///< requires values from black to white

  [[nodiscard]] bool on(const AugmentOptions& options) const {
    return options.*change.numbers.front().value != 0;
  }
};

[[nodiscard]] std::span<const Operation> operations();

// affine.cpp, crop.cpp, colour.cpp, blur.cpp, policy.cpp
void change_by_warp(AugmentedSample& sample, const AugmentOptions& options);
void change_by_cutout(AugmentedSample& sample, const AugmentOptions& options);
void change_by_resized_crop(AugmentedSample& sample, const AugmentOptions& options);
void change_by_crop(AugmentedSample& sample, const AugmentOptions& options);
void change_by_vflip(AugmentedSample& sample, const AugmentOptions& options);
void change_brightness(AugmentedSample& sample, const AugmentOptions& options);
void change_contrast(AugmentedSample& sample, const AugmentOptions& options);
void change_saturation(AugmentedSample& sample, const AugmentOptions& options);
void change_hue(AugmentedSample& sample, const AugmentOptions& options);
void change_to_grey(AugmentedSample& sample, const AugmentOptions& options);
void change_by_blur(AugmentedSample& sample, const AugmentOptions& options);
void change_by_randaugment(AugmentedSample& sample, const AugmentOptions& options);
// signal.cpp
void change_by_noise(AugmentedSample& sample, const AugmentOptions& options);
void change_by_noise_of_pixels(AugmentedSample& sample, const AugmentOptions& options);
void change_by_drop(AugmentedSample& sample, const AugmentOptions& options);
void change_by_time_shift(AugmentedSample& sample, const AugmentOptions& options);
void change_by_gain(AugmentedSample& sample, const AugmentOptions& options);
void change_by_reversal(AugmentedSample& sample, const AugmentOptions& options);
void change_by_time_mask(AugmentedSample& sample, const AugmentOptions& options);

/// Affine map from a position in the new image, relative to its centre, to a position in the old image.
struct Warp {
  double xx = 1, xy = 0, yx = 0, yy = 1, x0 = 0, y0 = 0;

  [[nodiscard]] bool identity() const {
    return xx == 1 && xy == 0 && yx == 0 && yy == 1 && x0 == 0 && y0 == 0;
  }
};

/// Warps the image. Positions outside the old image become black.
void warp(AugmentedSample& image, const Warp& how);

}  // namespace fq::detail
