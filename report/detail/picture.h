#pragma once

/// Pictures that stand in a page.

#include <string>

#include "fakequant/train/data/reader/images/image.h"

namespace fq::html {

/// What a browser may load of a page with pictures: nothing that is not in it.
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

/// Enlarged by whole numbers to about 64 pixels, or made smaller to 160.
[[nodiscard]] detail::Image shown_size(const detail::Image& picture);

/// "data:image/png;base64,..": the picture of 8 bits, as large as it is shown.
[[nodiscard]] std::string picture_uri(const detail::Image& picture);

}  // namespace fq::html
