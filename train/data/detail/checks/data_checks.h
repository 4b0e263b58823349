#pragma once

/// Checks of the samples of a data set: extreme values, numbers that are not finite, and duplicates.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace fq::detail {

/// Range of the stored values, and rows that are not finite.
struct ValueSurvey {
  double smallest = 0, largest = 0;
  std::int64_t rows = 0, bad_rows = 0, first_bad = -1;

  template <class T>
  void add(const T* values, std::int64_t count, std::int64_t row) {
    bool finite = true;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto value = [&] {
        if constexpr (std::is_arithmetic_v<T>)
          return static_cast<double>(values[i]);
        else
          return static_cast<double>(static_cast<float>(values[i]));
      }();
      if (!std::isfinite(value)) {
        finite = false;
      } else {
        smallest = seen_ ? std::min(smallest, value) : value;
        largest = seen_ ? std::max(largest, value) : value;
        seen_ = true;
      }
    }
    ++rows;
    if (finite) return;
    if (bad_rows++ == 0) first_bad = row;
  }

 private:
  bool seen_ = false;
};

/// Which sample that is, and its label; -1 without.
struct SamplePlace {
  std::uint32_t group = 0;
  std::int64_t row = 0, label = -1;
};

/// Keeps 96 bits of checksum a sample: that two others have the same does not come about by chance.
class Duplicates {
 public:
  void add(std::span<const std::byte> sample, SamplePlace place);

  /// Samples that are the same as one before them (in the order of groups, then rows).
  struct Pair {
    SamplePlace first, second;
  };
  [[nodiscard]] std::vector<Pair> pairs() const;

 private:
  struct Entry {
    std::uint64_t hash;
    std::uint32_t crc;
    SamplePlace place;
  };
  std::vector<Entry> entries_;
};

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
