#pragma once

/// Samples of the same bytes.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace fq::detail {

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

}  // namespace fq::detail
