#include "fakequant/train/data/detail/split_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "fakequant/core/detail/check.h"
#include "fakequant/train/data/detail/random.h"

namespace fq::detail {
namespace {

// Rows per group, bits per word, and number of cached groups (12 KiB each).
constexpr std::int64_t kGroup = 65536, kWord = 64, kCachedGroups = 512;
constexpr std::int64_t kMostRows = std::int64_t{1} << 40;  // kMostRows^2 / kGroup fits 64 bits
constexpr std::string_view kSplit = "split_validation";

std::int64_t held_out_count(std::int64_t size, double fraction) {
  FQ_CHECK(fraction > 0 && fraction < 1, kSplit, "the fraction is {}: use one between 0 and 1", fraction);
  FQ_CHECK(size >= 2, kSplit, "there are {} samples: at least 2 can be split", size);
  FQ_CHECK(size <= kMostRows, kSplit, "there are {} samples: at most {} can be split", size, kMostRows);
  return std::clamp<std::int64_t>(std::llround(fraction * static_cast<double>(size)), 1, size - 1);
}

}  // namespace

/// A group of rows: one bit per row, and the number of held-out rows before each word of bits.
class SplitRows::Group {
 public:
  Group(std::int64_t rows, std::int64_t held_out, std::uint64_t seed, std::int64_t index)
      : bits_(static_cast<std::size_t>((rows + kWord - 1) / kWord), 0), rows_(rows) {
    std::vector<std::int64_t> order(static_cast<std::size_t>(rows));
    std::iota(order.begin(), order.end(), std::int64_t{0});
    // The constant separates these draws from the other uses of the seed.
    Draws(seed, 0x5911, static_cast<std::uint64_t>(index)).shuffle(order);
    for (std::int64_t i = 0; i < held_out; ++i) {
      const auto row = order[static_cast<std::size_t>(i)];
      bits_[static_cast<std::size_t>(row / kWord)] |= std::uint64_t{1} << (row % kWord);
    }
    before_.push_back(0);
    for (const auto bits : bits_) before_.push_back(before_.back() + std::popcount(bits));
  }

  /// Returns the number of rows of the part below `row` of this group.
  [[nodiscard]] std::int64_t before(Part part, std::int64_t row) const {
    // Rank query: a prefix count per word, then a population count of the bits below `row`.
    const auto word = static_cast<std::size_t>(row / kWord);
    std::int64_t held_rows = before_[word];
    if (row % kWord > 0) held_rows += std::popcount(bits_[word] << (kWord - row % kWord));
    return part == held_out ? held_rows : row - held_rows;
  }

  /// Returns row i of the part: the last row with at most `i` rows of the part below it.
  [[nodiscard]] std::int64_t row(Part part, std::int64_t i) const {
    // Bisection: before(part, low) <= i < before(part, high) holds in each step.
    std::int64_t low = 0, high = rows_;
    while (high - low > 1) {
      const std::int64_t middle = low + (high - low) / 2;
      (before(part, middle) <= i ? low : high) = middle;
    }
    return low;
  }

 private:
  std::vector<std::uint64_t> bits_;
  std::vector<std::int32_t> before_;
  std::int64_t rows_;
};

SplitRows::SplitRows(std::int64_t size, double fraction, std::uint64_t seed)
    : size_(size), held_out_(held_out_count(size, fraction)), seed_(seed) {}
SplitRows::~SplitRows() = default;

std::int64_t SplitRows::groups() const noexcept { return (size_ + kGroup - 1) / kGroup; }

std::int64_t SplitRows::count(Part part) const noexcept {
  return part == held_out ? held_out_ : size_ - held_out_;
}

/// Returns the number of rows of the part before the group. Of its `rows` preceding rows,
/// floor(held_out * rows / size) are held out.
std::int64_t SplitRows::preceding_rows(Part part, std::int64_t group) const noexcept {
  const std::int64_t rows = std::min(group * kGroup, size_);
  // floor(a_group * index / size) without a 128-bit product: the remainder is below size <= 2^40 and index is
  // at most 2^24.
  const auto a_group = static_cast<std::uint64_t>(held_out_ * kGroup),
             size = static_cast<std::uint64_t>(size_);
  const auto index = static_cast<std::uint64_t>(group);
  const auto held_rows =
      group == groups() ? held_out_
                        : static_cast<std::int64_t>(a_group / size * index + a_group % size * index / size);
  return part == held_out ? held_rows : rows - held_rows;
}

std::shared_ptr<const SplitRows::Group> SplitRows::group(std::int64_t index) const {
  const std::lock_guard lock(mutex_);
  // A direct-mapped cache: groups that share an entry replace each other.
  auto& [cached, found] = latest_[index % kCachedGroups];
  if (found == nullptr || cached != index) {
    const std::int64_t held_rows = preceding_rows(held_out, index + 1) - preceding_rows(held_out, index);
    found = std::make_shared<const Group>(std::min(kGroup, size_ - index * kGroup), held_rows, seed_, index);
    cached = index;
  }
  return found;
}

std::int64_t SplitRows::row(Part part, std::int64_t i) const {
  std::int64_t low = 0, high = groups();
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (preceding_rows(part, middle) <= i ? low : high) = middle;
  }
  return low * kGroup + group(low)->row(part, i - preceding_rows(part, low));
}

std::int64_t SplitRows::before(Part part, std::int64_t row) const {
  if (row >= size_) return count(part);
  const std::int64_t index = row / kGroup;
  return preceding_rows(part, index) + group(index)->before(part, row % kGroup);
}

std::vector<std::int64_t> SplitRows::rows(Part part, std::int64_t group) const {
  std::vector<std::int64_t> out;
  for (std::int64_t i = preceding_rows(part, group); i < preceding_rows(part, group + 1); ++i)
    out.push_back(row(part, i));
  return out;
}

}  // namespace fq::detail
