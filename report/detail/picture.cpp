#include "fakequant/report/detail/picture.h"

#include <algorithm>
#include <cmath>

#include <zlib.h>

#include "fakequant/core/error.h"

namespace fq {
namespace {

constexpr std::int64_t kSmallTile = 64, kLargeTile = 160;

std::string base64(std::string_view bytes) {
  static constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    // Three bytes are four letters of 6 bits. At the end, missing bytes are 0 and missing letters are "="
    // (RFC 4648).
    std::uint32_t word = 0;
    for (std::size_t k = 0; k < 3; ++k)
      word = word << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (std::size_t k = 0; k < 4; ++k)
      out += i + k <= bytes.size() ? kLetters[word >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

/// Returns a picture of another size. A pixel is the mean of the pixels that it covers.
Picture resize(const Picture& from, std::int64_t width, std::int64_t height) {
  Picture out{width, height, from.channels, {}};
  // The covered pixels of an output pixel, at least one: an enlarged picture repeats pixels.
  const auto end = [](std::int64_t at, std::int64_t all, std::int64_t count) {
    return std::max((at + 1) * all / count, at * all / count + 1);
  };
  for (std::int64_t y = 0; y < height; ++y)
    for (std::int64_t x = 0; x < width; ++x)
      for (std::int64_t c = 0; c < from.channels; ++c) {
        std::int64_t sum = 0, count = 0;
        for (auto row = y * from.height / height; row < end(y, from.height, height); ++row)
          for (auto column = x * from.width / width; column < end(x, from.width, width); ++column, ++count)
            sum += from.pixels[std::size_t((row * from.width + column) * from.channels + c)];
        out.pixels.push_back(static_cast<std::uint8_t>((sum + count / 2) / count));
      }
  return out;
}

std::string big_endian(std::uint32_t value) {
  return {char(value >> 24), char(value >> 16), char(value >> 8), char(value)};
}

/// Returns a PNG chunk. `body` is the type of the chunk and its data.
/// The length counts the data without its type of 4 bytes, the checksum covers both (PNG specification,
/// section 5.3).
std::string png_chunk(std::string_view body) {
  const auto crc = ::crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return big_endian(std::uint32_t(body.size() - 4)) + std::string(body) + big_endian(std::uint32_t(crc));
}

std::string deflated(const std::string& bytes) {
  uLongf size = ::compressBound(uLong(bytes.size()));
  std::string out(size, '\0');
  if (::compress(reinterpret_cast<Bytef*>(out.data()), &size, reinterpret_cast<const Bytef*>(bytes.data()),
                 uLong(bytes.size())) != Z_OK)
    throw std::bad_alloc();
  out.resize(size);
  return out;
}

}  // namespace

// Input is planar [C, H, W]. Pixels are interleaved [H, W, C].
Picture make_picture(std::span<const float> values, const Shape& sample, std::span<const float> low,
                     std::span<const float> high) {
  Picture out{sample[2], sample[1], sample[0] == 3 ? 3 : 1, {}};
  const auto count = std::size_t(out.width * out.height);
  for (std::size_t p = 0; p < count; ++p)
    for (std::size_t c = 0; c < std::size_t(out.channels); ++c) {
      const float range = high[c] == low[c] ? 1 : high[c] - low[c];
      const float share = (values[c * count + p] - low[c]) / range;
      out.pixels.push_back(std::uint8_t(std::clamp(std::nearbyint(255 * share), 0.0f, 255.0f)));
    }
  return out;
}

Picture resize_for_page(const Picture& picture) {
  const std::int64_t side = std::max(picture.width, picture.height);
  const auto scaled = [&](std::int64_t size) {
    return side > kLargeTile ? std::max<std::int64_t>(1, size * kLargeTile / side)
                             : size * std::max<std::int64_t>(1, kSmallTile / side);
  };
  return resize(picture, scaled(picture.width), scaled(picture.height));
}

std::string encode_png(const Picture& picture) {
  const std::size_t row = std::size_t(picture.width * picture.channels);
  std::string rows;
  for (std::size_t at = 0; at < picture.pixels.size(); at += row) {
    rows += '\0';  // filter type of the row: none
    rows.append(reinterpret_cast<const char*>(picture.pixels.data()) + at, row);
  }
  // After the size: bit depth 8, colour type 0 (grey) or 2 (RGB), and 0 for compression, filter and
  // interlace.
  const std::string header = "IHDR" + big_endian(std::uint32_t(picture.width)) +
                             big_endian(std::uint32_t(picture.height)) + '\x08' +
                             (picture.channels == 1 ? '\0' : '\2') + std::string(3, '\0');
  return "\x89PNG\r\n\x1a\n" + png_chunk(header) + png_chunk(kPngSoftware) +
         png_chunk("IDAT" + deflated(rows)) + png_chunk("IEND");
}

std::string html::picture_uri(const Picture& picture) {
  return "data:image/png;base64," + base64(encode_png(resize_for_page(picture)));
}

}  // namespace fq
