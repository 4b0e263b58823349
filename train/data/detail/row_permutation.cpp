#include "fakequant/train/data/detail/row_permutation.h"

#include <bit>
#include <numeric>

#include "fakequant/train/data/detail/random.h"

namespace fq::detail {
namespace {

constexpr std::int64_t kListedRows = 65536;
constexpr std::uint64_t kRounds = 4;

}  // namespace

RowPermutation::RowPermutation(std::int64_t size, std::uint64_t seed)
    : size_(static_cast<std::uint64_t>(size)), seed_(seed), half_bits_((std::bit_width(size_ - 1) + 1) / 2) {
  if (size > kListedRows) return;
  table_.resize(static_cast<std::size_t>(size));
  std::iota(table_.begin(), table_.end(), std::int64_t{0});
  Draws(seed, 0, 0).shuffle(table_);
}

std::uint64_t RowPermutation::once(std::uint64_t value) const noexcept {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = value >> half_bits_, right = value & mask;
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    const std::uint64_t mixed = left ^ (Draws(seed_, right, round).next() & mask);
    left = right;
    right = mixed;
  }
  return left << half_bits_ | right;
}

std::int64_t RowPermutation::operator[](std::int64_t i) const {
  if (!table_.empty()) return table_[static_cast<std::size_t>(i)];
  auto value = static_cast<std::uint64_t>(i);
  do value = once(value);
  while (value >= size_);
  return static_cast<std::int64_t>(value);
}

}  // namespace fq::detail
