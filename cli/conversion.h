#pragma once

/// What the commands `dataset from-..` have in common: flags, and the way from samples to a file.

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "fakequant/cli/flags/flags.h"
#include "fakequant/cli/tables/output.h"
#include "fakequant/train/data/writer/data_set_file.h"

namespace fq::cli {

/// output, val, test, seed, classes, like; `numbers` adds scale and normalize.
void add_conversion_flags(FlagSet& set, bool numbers);
/// help, json and force: nothing is computed.
void add_plain_flags(FlagSet& set);

/// Samples that go to a file, and their labels.
struct Converting {
  std::unique_ptr<fq::detail::SampleSource> samples;
  fq::detail::Labels labels;
  std::vector<std::uint8_t> groups = {};  ///< empty: by --test and --val
};

/// The data set of --like; nothing without.
[[nodiscard]] std::optional<fq::detail::LikeData> like_of(const Flags& flags);
/// The names of --classes, or of the data set of --like; empty without both.
[[nodiscard]] std::vector<std::string> given_class_names(const Flags& flags);
/// The names of classes, "0", "1", .. where they have none; empty without classes.
[[nodiscard]] std::vector<std::string> class_names_of(const fq::detail::Labels& labels);
/// Of --delimiter: a character; 0 for auto.
[[nodiscard]] char delimiter_of(const Flags& flags);
/// Throws ArgumentError unless all have samples of one type, and labels of one task or none.
void check_same(const std::vector<Converting>& parts, const Flags& flags);
/// Splits what has no groups by --val, --test and --seed, of which --test is 0 where others are there, and
/// writes --output. Prints the groups and `notes`. Returns the result for machines.
[[nodiscard]] nlohmann::ordered_json write_converted(const Flags& flags, Output& output,
                                                     std::vector<Converting>& parts,
                                                     fq::detail::DataSetOptions options,
                                                     std::vector<std::string> notes);
/// The groups of `count` samples by these flags; `test_elsewhere`: the test has a file of its own.
[[nodiscard]] std::vector<std::uint8_t> groups_of(const Flags& flags, const fq::detail::Labels& labels,
                                                  std::int64_t count, bool test_elsewhere);

}  // namespace fq::cli
