#include "fakequant/train/data/reader/images/image.h"

#include <fmt/format.h>

#include "fakequant/train/data/reader/images/codecs.h"

namespace fq::detail {
namespace {

StoredInfo read(std::string_view bytes, Image* image) {
  if (bytes.starts_with("\x89PNG")) return read_png(bytes, image);
  if (bytes.starts_with("\xff\xd8\xff")) return read_jpeg(bytes, image);
  throw BadImage(bytes.empty() ? "is empty" : "is no PNG or JPEG image");
}

}  // namespace

bool has_images() noexcept { return true; }

ImageInfo image_info(std::string_view bytes) {
  StoredInfo stored = read(bytes, nullptr);
  if (stored.orientation >= 5) std::swap(stored.info.width, stored.info.height);
  return stored.info;
}

Image decode_image(std::string_view bytes) {
  Image image;
  const StoredInfo stored = read(bytes, &image);
  return upright(std::move(image), stored.orientation);
}

}  // namespace fq::detail
