#pragma once

/// Images moved by an affine map, bilinear.

#include "fakequant/train/data/detail/augment/sample.h"

namespace fq::detail {

/// From a place in the new image, relative to its centre, to one in the old image.
struct Warp {
  double xx = 1, xy = 0, yx = 0, yy = 1, x0 = 0, y0 = 0;

  [[nodiscard]] bool identity() const {
    return xx == 1 && xy == 0 && yx == 0 && yy == 1 && x0 == 0 && y0 == 0;
  }
};

/// What was outside becomes black.
void warp(AugmentedSample& image, const Warp& how);

}  // namespace fq::detail
