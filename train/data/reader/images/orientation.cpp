#include <algorithm>

#include "fakequant/train/data/reader/images/codecs.h"

namespace fq::detail {
namespace {

constexpr std::uint32_t kOrientation = 0x0112, kShort = 3;

/// Numbers of a TIFF structure in its byte order; 0 outside of it.
class Tiff {
 public:
  explicit Tiff(std::string_view bytes) : bytes_(bytes), big_(bytes.starts_with("MM")) {}

  [[nodiscard]] bool valid() const { return (big_ || bytes_.starts_with("II")) && number(2, 2) == 42; }
  [[nodiscard]] std::uint32_t number(std::size_t at, std::size_t count) const {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t from = at + (big_ ? i : count - 1 - i);
      value = value << 8 | (from < bytes_.size() ? static_cast<unsigned char>(bytes_[from]) : 0u);
    }
    return value;
  }

 private:
  std::string_view bytes_;
  bool big_;
};

}  // namespace

int exif_orientation(std::string_view bytes) {
  const Tiff tiff(bytes);
  if (!tiff.valid()) return 1;
  const std::size_t directory = tiff.number(4, 4);
  if (directory >= bytes.size()) return 1;
  const std::uint32_t entries = tiff.number(directory, 2);
  for (std::uint32_t i = 0; i < entries; ++i) {
    const std::size_t entry = directory + 2 + std::size_t(i) * 12;
    if (entry + 12 > bytes.size()) return 1;
    if (tiff.number(entry, 2) != kOrientation || tiff.number(entry + 2, 2) != kShort) continue;
    const auto value = int(tiff.number(entry + 8, 2));
    return value >= 1 && value <= 8 ? value : 1;
  }
  return 1;
}

Image upright(Image image, int orientation) {
  if (orientation == 1) return image;
  const std::int64_t width = image.info.width, height = image.info.height, channels = image.info.channels;
  const bool swaps = orientation >= 5;
  Image out{image.info, std::vector<std::uint16_t>(image.samples.size())};
  if (swaps) std::swap(out.info.width, out.info.height);
  // Where the first row and column are: 1 top left, 2 top right, 3 bottom right, 4 bottom left; 5 to 8 the
  // same with the two exchanged: left top, right top, right bottom, left bottom.
  const bool mirror = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool flip = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  for (std::int64_t y = 0; y < out.info.height; ++y)
    for (std::int64_t x = 0; x < out.info.width; ++x) {
      std::int64_t from_x = swaps ? y : x, from_y = swaps ? x : y;
      if (mirror) from_x = width - 1 - from_x;
      if (flip) from_y = height - 1 - from_y;
      std::copy_n(image.samples.begin() + (from_y * width + from_x) * channels, channels,
                  out.samples.begin() + (y * out.info.width + x) * channels);
    }
  return out;
}

}  // namespace fq::detail
