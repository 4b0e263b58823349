#include "fakequant/train/data/reader/images/image.h"

#include <stdexcept>

#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "reader.h"

void fq::fuzz::read_image(const std::string& path) try {
  const std::string bytes = read_file(path);
  const auto info = detail::image_info(bytes);
  if (info.width * info.height > 1 << 20) throw detail::BadImage("is larger than is tried here");
  const auto image = detail::decode_image(bytes);
  if (image.samples.size() != std::size_t(image.info.width * image.info.height * image.info.channels))
    throw std::logic_error("an image of other samples than its size");
} catch (const detail::BadImage& error) {
  throw FileError(path, "", error.what());
}
