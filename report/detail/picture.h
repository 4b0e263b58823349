#pragma once

/// Pictures of samples: made of values, resized for a page, and written as PNG.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/core/blocks/shape.h"

namespace fq {

/// Pixels [height, width, channels]: 1 channel is grey, 3 are red, green and blue.
struct Picture {
  std::int64_t width = 0, height = 0, channels = 3;
  std::vector<std::uint8_t> pixels = {};
};

/// Makes a picture of the values of a sample [C, H, W]. In channel c, low[c] is black and high[c] is white.
/// Shows the first channel in grey if the sample has neither 1 nor 3 channels.
[[nodiscard]] Picture make_picture(std::span<const float> values, const Shape& sample,
                                   std::span<const float> low, std::span<const float> high);
/// Enlarges a picture by a whole number to about 64 pixels, or shrinks it to at most 160.
[[nodiscard]] Picture resize_for_page(const Picture& picture);

/// Text chunk that marks the files of `encode_png`.
inline constexpr std::string_view kPngSoftware("tEXtSoftware\0fakequant", 22);
/// Returns a PNG file.
[[nodiscard]] std::string encode_png(const Picture& picture);

namespace html {

/// Content security policy of a page with pictures: the page loads no other file.
inline constexpr const char* picture_policy =
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";
/// Styles of samples side by side, figures in a block of class `samples`.
inline constexpr const char* samples_style = R"css(
.samples { display: flex; flex-wrap: wrap; gap: 8px; margin: 8px 0 20px; }
.samples figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: 6px; }
.samples img { display: block; min-width: 64px; max-width: 224px; image-rendering: pixelated; }
.samples figcaption { color: var(--soft); font-size: 12px; text-align: center; }
.samples code { display: block; max-width: 60ch; overflow-wrap: anywhere; }
)css";

/// Returns "data:image/png;base64,..": the picture in the size of `resize_for_page`.
[[nodiscard]] std::string picture_uri(const Picture& picture);

}  // namespace html
}  // namespace fq
