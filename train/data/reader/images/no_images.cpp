#include "fakequant/core/error.h"
#include "fakequant/train/data/reader/images/image.h"

namespace fq::detail {
namespace {

[[noreturn]] void refuse() {
  throw BackendError(
      "[dataset] this build reads and writes no images: install libpng-dev and libjpeg-dev, and configure "
      "again");
}

}  // namespace

bool has_images() noexcept { return false; }
ImageInfo image_info(std::string_view) { refuse(); }
Image decode_image(std::string_view) { refuse(); }
std::string encode_png(const std::vector<std::uint8_t>&, std::int64_t, std::int64_t, int) { refuse(); }

}  // namespace fq::detail
