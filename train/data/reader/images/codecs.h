#pragma once

/// The formats one by one.

#include "fakequant/train/data/reader/images/image.h"

namespace fq::detail {

/// Of a file as it is stored; `orientation` is EXIF's, 1 to 8.
struct StoredInfo {
  ImageInfo info;
  int orientation = 1;
};

/// Each throws BadImage. `image` null: only what the beginning says.
[[nodiscard]] StoredInfo read_png(std::string_view bytes, Image* image);
[[nodiscard]] StoredInfo read_jpeg(std::string_view bytes, Image* image);

/// Of the TIFF structure that EXIF is: the tag Orientation, 1 where there is none or it is damaged.
[[nodiscard]] int exif_orientation(std::string_view tiff);
/// Turns and mirrors it as the orientation says.
[[nodiscard]] Image upright(Image image, int orientation);

}  // namespace fq::detail
