#include "fakequant/train/data/detail/order.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "fakequant/train/data/detail/random.h"

namespace fq::detail {
namespace {

constexpr std::int64_t kListedRows = 65536;
constexpr std::uint64_t kRounds = 4;

constexpr std::uint64_t kWindowSeed = 0x77696e646f77;  // separates windows from blocks

}  // namespace

RowPermutation::RowPermutation(std::int64_t size, std::uint64_t seed)
    : size_(static_cast<std::uint64_t>(size)), seed_(seed), half_bits_((std::bit_width(size_ - 1) + 1) / 2) {
  if (size > kListedRows) return;
  table_.resize(static_cast<std::size_t>(size));
  std::iota(table_.begin(), table_.end(), std::int64_t{0});
  Draws(seed, 0, 0).shuffle(table_);
}

// One pass of the Feistel network on 2 * half_bits_ bits. It is a bijection for any round function.
std::uint64_t RowPermutation::once(std::uint64_t value) const noexcept {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = value >> half_bits_, right = value & mask;
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    // The round function is a random number for (seed, right half, round).
    const std::uint64_t mixed = left ^ (Draws(seed_, right, round).next() & mask);
    left = right;
    right = mixed;
  }
  return left << half_bits_ | right;
}

std::int64_t RowPermutation::operator[](std::int64_t i) const {
  if (!table_.empty()) return table_[static_cast<std::size_t>(i)];
  auto value = static_cast<std::uint64_t>(i);
  // Cycle walking: the network permutes a range less than 4 times as large as size_.
  do value = once(value);
  while (value >= size_);
  return static_cast<std::int64_t>(value);
}

EpochOrder::EpochOrder(const Dataset& data, bool shuffle, std::uint64_t seed, std::int64_t epoch,
                       std::vector<std::int64_t> draws)
    : shuffle_(shuffle), seed_(seed), epoch_(epoch), size_(data.size()), draws_(std::move(draws)) {
  if (!shuffle_) return;
  starts_ = data.block_starts();
  // With class draws, blocks are ranges of the ascending list of draws instead of ranges of samples.
  if (!draws_.empty())
    for (auto& start : starts_) start = std::ranges::lower_bound(draws_, start) - draws_.begin();
  blocks_.resize(starts_.size());
  starts_.push_back(size_);
  std::iota(blocks_.begin(), blocks_.end(), std::int64_t{0});
  // The order of the blocks comes first. Only samples of one window are in memory and shuffled together.
  Draws(seed_, static_cast<std::uint64_t>(epoch_), 0).shuffle(blocks_);
  window_blocks_ = std::max<std::int64_t>(data.blocks_at_once(), 1);
  std::int64_t position = 0;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    if (static_cast<std::int64_t>(i) % window_blocks_ == 0) window_starts_.push_back(position);
    const auto block = static_cast<std::size_t>(blocks_[i]);
    position += starts_[block + 1] - starts_[block];
  }
  window_ = window_starts_.size();
  window_starts_.push_back(size_);
}

// The shuffle of a window depends on its number only, so that a resumed run can start in any window.
void EpochOrder::load_window(std::size_t window) {
  if (window == window_) return;
  window_samples_.clear();
  const std::size_t first = window * static_cast<std::size_t>(window_blocks_);
  const std::size_t last = std::min(first + static_cast<std::size_t>(window_blocks_), blocks_.size());
  for (std::size_t i = first; i < last; ++i) {
    const auto block = static_cast<std::size_t>(blocks_[i]);
    for (std::int64_t sample = starts_[block]; sample < starts_[block + 1]; ++sample)
      window_samples_.push_back(draws_.empty() ? sample : draws_[static_cast<std::size_t>(sample)]);
  }
  Draws(seed_ ^ kWindowSeed, static_cast<std::uint64_t>(epoch_), window).shuffle(window_samples_);
  window_ = window;
}

std::vector<std::int64_t> EpochOrder::samples(std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> chosen(static_cast<std::size_t>(end - begin));
  if (!shuffle_) {
    std::iota(chosen.begin(), chosen.end(), begin);
    return chosen;
  }
  // The last window that begins at or before `begin`.
  auto window =
      static_cast<std::size_t>(std::ranges::upper_bound(window_starts_, begin) - window_starts_.begin()) - 1;
  for (std::int64_t at = begin; at < end; ++window) {
    load_window(window);
    const std::int64_t stop = std::min(end, window_starts_[window + 1]);
    std::copy_n(window_samples_.begin() + (at - window_starts_[window]), stop - at,
                chosen.begin() + (at - begin));
    at = stop;
  }
  return chosen;
}

}  // namespace fq::detail
