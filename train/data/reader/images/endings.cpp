#include "fakequant/train/data/reader/images/image.h"

namespace fq::detail {

const std::vector<std::string>& image_endings() {
  static const std::vector<std::string> endings{".png", ".jpg", ".jpeg", ".jpe", ".jfif"};
  return endings;
}

const std::vector<std::string>& other_image_endings() {
  static const std::vector<std::string> endings{".webp", ".gif", ".bmp",  ".tif",  ".tiff", ".ppm",
                                                ".pgm",  ".jp2", ".avif", ".heic", ".jxl",  ".tga"};
  return endings;
}

}  // namespace fq::detail
