#pragma once

/// Which rows are held out, without a list of them.

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace fq::detail {

/// Rows 0 .. size - 1 in two parts, each ascending. Of every 65,536 rows the same share is held out, to one
/// row, chosen by a shuffle of their own: what one part has of them is found by itself, and the latest are
/// kept (6 MiB at most). Thread-safe.
class SplitRows {
 public:
  enum Part : unsigned char { train = 0, held_out = 1 };

  /// As `split_validation`.
  SplitRows(std::int64_t size, double fraction, std::uint64_t seed);
  ~SplitRows();
  SplitRows(const SplitRows&) = delete;  // shared by pointer
  SplitRows& operator=(const SplitRows&) = delete;

  [[nodiscard]] std::int64_t size() const noexcept { return size_; }
  [[nodiscard]] std::uint64_t seed() const noexcept { return seed_; }
  [[nodiscard]] std::int64_t groups() const noexcept;
  /// How many rows a part has.
  [[nodiscard]] std::int64_t count(Part part) const noexcept;
  /// The row of the part's i-th.
  [[nodiscard]] std::int64_t row(Part part, std::int64_t i) const;
  /// How many of the part are below `row`.
  [[nodiscard]] std::int64_t before(Part part, std::int64_t row) const;
  /// Those of one of the groups.
  [[nodiscard]] std::vector<std::int64_t> rows(Part part, std::int64_t group) const;

 private:
  class Group;

  [[nodiscard]] std::int64_t before_group(Part part, std::int64_t group) const noexcept;
  [[nodiscard]] std::shared_ptr<const Group> group(std::int64_t index) const;

  std::int64_t size_, held_out_;
  std::uint64_t seed_;
  mutable std::mutex mutex_;
  mutable std::map<std::int64_t, std::pair<std::int64_t, std::shared_ptr<const Group>>>
      latest_;  // by place kept
};

}  // namespace fq::detail
