#pragma once

/// Images in files: PNG and JPEG, by libpng and libjpeg.

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace fq::detail {

/// Why an image cannot be read, to go on after its path: "is truncated".
class BadImage : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What the beginning of a file says.
struct ImageInfo {
  std::int64_t width = 0, height = 0;  ///< as it is to be seen
  int channels = 3;                    ///< 1: grey, 3: red, green, blue
  int bits = 8;                        ///< of a sample: 8 or 16
};

/// Samples [height, width, channels], 0 to 2^bits - 1.
struct Image {
  ImageInfo info;
  std::vector<std::uint16_t> samples;
};

inline constexpr std::int64_t kMostPixels = std::int64_t{1} << 27;
inline constexpr std::int64_t kMostImageBytes = std::int64_t{1} << 28;

/// Endings of files that are read: ".png", ".jpg", ..
[[nodiscard]] const std::vector<std::string>& image_endings();
/// Endings of images of other formats, which are named and left out.
[[nodiscard]] const std::vector<std::string>& other_image_endings();

/// Whether this build reads images. Without, the functions below throw BackendError, which says what to
/// install.
[[nodiscard]] bool has_images() noexcept;

/// By the first bytes, whatever the name. `bytes` may be the beginning of a file only: throws BadImage where
/// that is too little, too.
[[nodiscard]] ImageInfo image_info(std::string_view bytes);
/// The image as it is to be seen: turned as EXIF says, CMYK as red, green and blue, without transparency,
/// colours as they are stored (no profile, no gamma). Throws BadImage for other formats, truncated and
/// damaged files, and more than kMostPixels.
[[nodiscard]] Image decode_image(std::string_view bytes);

/// What encode_png leaves in its files, by which they are known.
inline constexpr std::string_view kPngSoftware("tEXtSoftware\0fakequant", 22);
/// A PNG file of samples [height, width, channels] of 8 bits, channels being 1 or 3.
[[nodiscard]] std::string encode_png(const std::vector<std::uint8_t>& samples, std::int64_t width,
                                     std::int64_t height, int channels);

}  // namespace fq::detail
