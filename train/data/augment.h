#pragma once

/// Random changes of training images that keep their meaning.

#include <cstdint>
#include <span>
#include <vector>

#include "fakequant/core/tensor.h"

namespace fq {

/// How far each change may go; 0 leaves it out. Amounts are uniform in [-limit, limit].
struct AugmentOptions {
  double shift = 0;         ///< pixels, along each axis
  double rotation = 0;      ///< degrees, about the centre
  double scale = 0;         ///< fraction of the size: 0.1 gives 0.9 to 1.1; below 1
  double shear = 0;         ///< columns moved per row
  std::int64_t cutout = 0;  ///< side of one erased square, pixels; its centre is anywhere in the image
  bool flip = false;        ///< mirrors left and right every second image

  [[nodiscard]] bool any() const noexcept {
    return shift != 0 || rotation != 0 || scale != 0 || shear != 0 || cutout != 0 || flip;
  }
};

/// Throws ArgumentError for a negative or infinite limit and for a scale of 1 or more.
void check(const AugmentOptions& options);

/// Changes f32 [N, C, H, W] images in place: one affine warp with bilinear interpolation (flip, shear, scale,
/// rotation, shift, in that order), then the cutout. Image i changes by (seed, epoch, samples[i]) alone,
/// every channel alike. What was outside of the image becomes `background[c]`. Throws ArgumentError for other
/// shapes, dtypes and counts.
void augment(Tensor& images, std::span<const std::int64_t> samples, const AugmentOptions& options,
             std::uint64_t seed, std::int64_t epoch, const std::vector<float>& background);

}  // namespace fq
