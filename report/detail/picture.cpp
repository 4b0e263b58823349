#include "fakequant/report/detail/picture.h"

#include <algorithm>

#include "fakequant/train/data/reader/images/resample.h"

namespace fq::html {
namespace {

using detail::Image;

constexpr std::int64_t kSmallTile = 64, kLargeTile = 160;

std::string base64(std::string_view bytes) {
  static constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t word = 0;
    for (std::size_t k = 0; k < 3; ++k)
      word = word << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (std::size_t k = 0; k < 4; ++k)
      out += i + k <= bytes.size() ? kLetters[word >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

}  // namespace

Image shown_size(const Image& picture) {
  const std::int64_t width = picture.info.width, height = picture.info.height, side = std::max(width, height);
  if (side > kLargeTile)
    return detail::resized(picture, std::max<std::int64_t>(1, width * kLargeTile / side),
                           std::max<std::int64_t>(1, height * kLargeTile / side));
  const std::int64_t times = std::max<std::int64_t>(1, kSmallTile / side), channels = picture.info.channels;
  Image out{picture.info, {}};
  out.info.width = width * times;
  out.info.height = height * times;
  for (std::int64_t y = 0; y < out.info.height; ++y)
    for (std::int64_t x = 0; x < out.info.width; ++x)
      for (std::int64_t c = 0; c < channels; ++c)
        out.samples.push_back(picture.samples[std::size_t(((y / times) * width + x / times) * channels + c)]);
  return out;
}

std::string picture_uri(const Image& picture) {
  const Image shown = shown_size(picture);
  const std::vector<std::uint8_t> samples(shown.samples.begin(), shown.samples.end());
  return "data:image/png;base64," +
         base64(detail::encode_png(samples, shown.info.width, shown.info.height, shown.info.channels));
}

}  // namespace fq::html
