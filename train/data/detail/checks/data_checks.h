#pragma once

/// What may be wrong with a data set file, found by reading all of it.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace fq::detail {

enum class Verdict { fine, doubt, wrong };

/// "fine", "doubt", "wrong".
[[nodiscard]] std::string_view name(Verdict verdict) noexcept;

/// One thing that was looked at.
struct Finding {
  Verdict verdict = Verdict::fine;
  std::string group;  ///< empty: of the file
  std::string about;  ///< shape, values, labels, balance or duplicates
  std::string text;   ///< what there is and, where it is doubted, what to do
};

/// Called with the rows that were read.
using CheckProgress = std::function<void(std::int64_t rows)>;

/// Looks at every group with an x: shapes (alike in all groups, channels where they should be), values (NaN
/// and infinity by their row, pixels that nothing scales, nothing but one value, ids below 0), labels (as
/// many as samples, in range), balance (classes without a sample for training, or ten times as many of one as
/// of another) and duplicates (samples of the same bytes in a group, in two groups, with two labels). What
/// cannot be read at all is a finding, too. Throws FileError for what is no data set, and what `progress`
/// throws.
[[nodiscard]] std::vector<Finding> check_data_set(const std::string& path,
                                                  const CheckProgress& progress = {});

}  // namespace fq::detail
