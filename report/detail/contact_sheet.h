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

/// A sample as an 8-bit picture, or as text: decoded tokens, or numbers.
struct ShownSample {
  std::int64_t row = 0;
  Picture picture = {};
  std::string text = {};
};

/// Samples of one class, or of the whole group if the data has no classes.
struct ShownClass {
  std::string name;        ///< "cat", "3"; empty without classes
  std::int64_t count = 0;  ///< samples of the class in the file
  std::vector<ShownSample> samples = {};
};

struct ShownData {
  std::int64_t rows = 0;
  std::string kind;       ///< "[3, 32, 32] u8"
  bool pictures = false;  ///< whether samples are pictures
  std::vector<ShownClass> classes;
};

/// Augmentation of the samples before they are shown.
struct ShownChange {
  AugmentOptions options;
  std::uint64_t seed = 0;
};

/// Returns about `count` samples of the group `split`: the same number of each class, evenly spread over its
/// rows. Pixels are values times the attribute `scale`, from 0 (black) to 1 (white). If shown values lie
/// outside of this range, the smallest is black and the largest is white. A picture with neither 1 nor 3
/// channels shows its first channel. With `change`, the samples look as in the first epoch of training with
/// these options. Mixing pairs a sample with a sample of another class, if there is one. Throws as
/// Hdf5Dataset, and for a change that does not apply to the samples.
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
