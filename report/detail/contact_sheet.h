#pragma once

/// Samples of a data set side by side, as a picture and as a page.

#include <string>
#include <utility>
#include <vector>

#include "fakequant/report/detail/shown_samples.h"

namespace fq {

/// A PNG file: the pictures of each class in rows of their own, enlarged by whole numbers to about 64 pixels,
/// or made smaller to 160. Throws ArgumentError for data that is no images.
[[nodiscard]] std::string contact_sheet_png(const ShownData& data);

/// A page that needs nothing else, and loads nothing: the samples of each class under its name and count.
[[nodiscard]] std::string contact_sheet_html(const std::string& title,
                                             const std::vector<std::pair<std::string, std::string>>& facts,
                                             const ShownData& data);

}  // namespace fq
