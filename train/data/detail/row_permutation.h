#pragma once

/// A permutation of rows that is read where it is asked for.

#include <cstdint>
#include <vector>

namespace fq::detail {

/// Of 0 .. size - 1, by `seed`. Up to 65,536 rows lie in a table, shuffled by Fisher and Yates; more are a
/// keyed bijection: a Feistel network on the least even number of bits that has them all, walked until it
/// is within (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002). No memory grows with them.
class RowPermutation {
 public:
  RowPermutation(std::int64_t size, std::uint64_t seed);

  [[nodiscard]] std::int64_t operator[](std::int64_t i) const;

 private:
  [[nodiscard]] std::uint64_t once(std::uint64_t value) const noexcept;

  std::uint64_t size_, seed_;
  int half_bits_;
  std::vector<std::int64_t> table_;
};

}  // namespace fq::detail
