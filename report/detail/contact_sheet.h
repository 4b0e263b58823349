#pragma once

/// Samples of a data set side by side, as a picture and as a page.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fakequant/report/detail/picture.h"
#include "fakequant/train/data/augment.h"

namespace fq {

/// A sample as a picture of 8 bits, or as text: its tokens as text, or its numbers.
struct ShownSample {
  std::int64_t row = 0;
  Picture picture = {};
  std::string text = {};
};

/// Samples of one class, or of all where there are no classes.
struct ShownClass {
  std::string name;        ///< "cat", "3"; empty without classes
  std::int64_t count = 0;  ///< of the group
  std::vector<ShownSample> samples = {};
};

struct ShownData {
  std::int64_t rows = 0;
  std::string kind;       ///< "[3, 32, 32] u8"
  bool pictures = false;  ///< whether samples are
  std::vector<ShownClass> classes;
};

/// How samples are changed before they are shown.
struct ShownChange {
  AugmentOptions options;
  std::uint64_t seed = 0;
};

/// About `count` samples of the group `split`, as many of each class, evenly spread over its rows. Pictures
/// have values times the attribute `scale`, 0 being black and 1 white, or the smallest and largest of those
/// shown where they lie beyond; of other than 1 and 3 channels the first. With `change` samples are as
/// training with it sees them in its first epoch, each mixed with one of another class where there is one.
/// Throws as Hdf5Dataset, and for what samples of the data do not have.
[[nodiscard]] ShownData samples_to_show(const std::string& path, const std::string& split, std::int64_t count,
                                        const std::optional<ShownChange>& change = {});

/// Returns a PNG file with separate rows for each class. Pictures are enlarged by whole numbers to about 64
/// pixels, or shrunk to 160. Throws ArgumentError unless the samples are images.
[[nodiscard]] std::string contact_sheet_png(const ShownData& data);

/// Returns a page that loads no other file: the samples of each class under its name and count.
[[nodiscard]] std::string contact_sheet_html(const std::string& title,
                                             const std::vector<std::pair<std::string, std::string>>& facts,
                                             const ShownData& data);

}  // namespace fq
