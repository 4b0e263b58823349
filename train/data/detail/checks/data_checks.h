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

/// Position and label of a sample; label -1 if it has none.
struct SamplePlace {
  std::uint32_t group = 0;
  std::int64_t row = 0, label = -1;
};

/// Finds duplicates with 96 bits of checksum per sample, which makes an accidental match practically
/// impossible.
class Duplicates {
 public:
  void add(std::span<const std::byte> sample, SamplePlace place);

  /// A sample and an equal earlier sample (in the order of groups, then rows).
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

/// Returns "fine", "doubt" or "wrong".
[[nodiscard]] std::string_view name(Verdict verdict) noexcept;

/// Result of one check.
struct Finding {
  Verdict verdict = Verdict::fine;
  std::string group;  ///< empty for the whole file
  std::string about;  ///< shape, values, labels, balance or duplicates
  std::string text;   ///< description, with a remedy in case of doubt
};

/// Called with the number of rows read.
using CheckProgress = std::function<void(std::int64_t rows)>;

/// Checks every group that has an x.
///
/// - shapes: equal in all groups, channels first;
/// - values: NaN or infinity with its row, pixels without a scale, a single value, ids below 0;
/// - labels: one per sample, in range;
/// - balance: classes without training samples, or with ten times the samples of another class;
/// - duplicates: samples with equal bytes in one group, in two groups, or with two labels.
///
/// A part that cannot be read is a finding, too. Throws FileError for a file that is not a data set, and the
/// errors of `progress`.
[[nodiscard]] std::vector<Finding> check_data_set(const std::string& path,
                                                  const CheckProgress& progress = {});

}  // namespace fq::detail
