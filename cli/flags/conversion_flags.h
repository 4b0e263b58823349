#pragma once

/// Flags that the commands `dataset ..` share, and what they say.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fakequant/cli/flags/flags.h"
#include "fakequant/train/data/reader/sample_source.h"
#include "fakequant/train/data/writer/like.h"

namespace fq::cli {

/// output, val, test, seed, classes, like; `numbers` adds scale and normalize.
void add_conversion_flags(FlagSet& set, bool numbers);
/// help, json and force: nothing is computed.
void add_plain_flags(FlagSet& set);

/// The data set of --like; nothing without.
[[nodiscard]] std::optional<fq::detail::LikeData> like_of(const Flags& flags);
/// The names of --classes, or of the data set of --like; empty without both.
[[nodiscard]] std::vector<std::string> given_class_names(const Flags& flags);
/// The names of classes, "0", "1", .. where they have none; empty without classes.
[[nodiscard]] std::vector<std::string> class_names_of(const fq::detail::Labels& labels);
/// Of --delimiter: a character; 0 for auto.
[[nodiscard]] char delimiter_of(const Flags& flags);
/// The groups of `count` samples by these flags; `test_elsewhere`: the test has a file of its own.
[[nodiscard]] std::vector<std::uint8_t> groups_of(const Flags& flags, const fq::detail::Labels& labels,
                                                  std::int64_t count, bool test_elsewhere);

}  // namespace fq::cli
