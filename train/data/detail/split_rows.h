#pragma once

/// SplitRows: a validation split without a list of rows.

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace fq::detail {

/// Divides the rows 0 .. size - 1 into two ascending parts. Each group of 65,536 rows has its own shuffle and
/// holds out the same share, to one row. So a group can be computed independently; the most recent groups are
/// cached (6 MiB at most). Thread-safe.
class SplitRows {
 public:
  enum Part : unsigned char { train = 0, held_out = 1 };

  /// Takes the arguments of `split_validation` and throws its errors.
  SplitRows(std::int64_t size, double fraction, std::uint64_t seed);
  ~SplitRows();
  SplitRows(const SplitRows&) = delete;  // shared by pointer
  SplitRows& operator=(const SplitRows&) = delete;

  [[nodiscard]] std::int64_t size() const noexcept { return size_; }
  [[nodiscard]] std::uint64_t seed() const noexcept { return seed_; }
  [[nodiscard]] std::int64_t groups() const noexcept;
  /// Returns the number of rows of a part.
  [[nodiscard]] std::int64_t count(Part part) const noexcept;
  /// Returns row i of a part.
  [[nodiscard]] std::int64_t row(Part part, std::int64_t i) const;
  /// Returns the number of rows of a part below `row`.
  [[nodiscard]] std::int64_t before(Part part, std::int64_t row) const;
  /// Returns the rows of a part in one group.
  [[nodiscard]] std::vector<std::int64_t> rows(Part part, std::int64_t group) const;

 private:
  class Group;

  [[nodiscard]] std::int64_t preceding_rows(Part part, std::int64_t group) const noexcept;
  [[nodiscard]] std::shared_ptr<const Group> group(std::int64_t index) const;

  std::int64_t size_, held_out_;
  std::uint64_t seed_;
  mutable std::mutex mutex_;
  mutable std::map<std::int64_t, std::pair<std::int64_t, std::shared_ptr<const Group>>>
      latest_;  // by cache slot
};

}  // namespace fq::detail
