#pragma once

/// Sizes and colours of images.

#include <string>

#include "fakequant/train/data/reader/images/image.h"

namespace fq::detail {

/// How an image of another shape comes to the size asked for.
enum class Fit {
  crop,    ///< made as small as covers it, the middle taken
  pad,     ///< made as large as fits in it, black around
  stretch  ///< both sides for themselves
};

struct ImageForm {
  std::int64_t width = 0, height = 0;  ///< 0: as it is
  Fit fit = Fit::crop;
  std::int64_t short_side = 0;  ///< the shorter side is made that long, then the middle taken; 0: by `fit`
  int channels = 3;             ///< 1 or 3
  int bits = 8;                 ///< 8 or 16
};

/// To another width and height: each new sample the mean of those it covers, weighted by a triangle that is
/// two of the larger of old and new pixels wide (bilinear, antialiased).
[[nodiscard]] Image resized(const Image& image, std::int64_t width, std::int64_t height);
/// The image in that form, [channels, height, width]: grey as 0.299 red + 0.587 green + 0.114 blue, 16 bits
/// by 257 of 8.
[[nodiscard]] Image formed(Image image, const ImageForm& form);

}  // namespace fq::detail
