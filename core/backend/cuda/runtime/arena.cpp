#include "fakequant/core/backend/cuda/runtime/arena.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <mutex>

namespace fq::cuda {
namespace {

constexpr std::size_t kAlignment = 256;
// Large pieces: a training step has thousands of small tensors.
constexpr std::size_t kLeastPiece = std::size_t{8} << 20;

struct KnownPiece {
  std::size_t bytes;
  std::shared_ptr<Arena> arena;
};

struct Arenas {
  std::mutex mutex;                                               // also guards the contents of arenas
  std::map<const std::byte*, KnownPiece, std::greater<>> pieces;  // in descending order

  [[nodiscard]] std::shared_ptr<Arena> find(const void* pointer) const {
    const auto* at = static_cast<const std::byte*>(pointer);
    // Descending order: lower_bound is the last piece that begins at or before the pointer.
    const auto piece = pieces.lower_bound(at);
    return piece != pieces.end() && at < piece->first + piece->second.bytes ? piece->second.arena : nullptr;
  }
};

Arenas& arenas() {
  static auto* all = new Arenas;  // tensors with static lifetime may outlive any other static object
  return *all;
}

}  // namespace

std::shared_ptr<Arena> Arena::make(DeviceState& state) { return std::shared_ptr<Arena>(new Arena(state)); }

void Arena::add_piece(std::size_t bytes) {
  auto* begin = static_cast<std::byte*>(state_.take(bytes));
  pieces_.emplace(begin, bytes);
  free_.emplace(begin, bytes);
  arenas().pieces.emplace(begin, KnownPiece{bytes, shared_from_this()});
}

// Best fit by a linear search. It runs only during a capture, once per tensor, never in a launch.
void* Arena::take(std::size_t bytes) {
  const std::size_t size =
      std::max<std::size_t>((bytes + kAlignment - 1) / kAlignment * kAlignment, kAlignment);
  const std::scoped_lock lock(arenas().mutex);
  const auto smallest = [&] {
    auto best = free_.end();
    for (auto at = free_.begin(); at != free_.end(); ++at)
      if (at->second >= size && (best == free_.end() || at->second < best->second)) best = at;
    return best;
  };
  auto range = smallest();
  if (range == free_.end()) {
    add_piece(std::max(size, kLeastPiece));
    range = smallest();
  }
  const auto [begin, room] = *range;
  taken_.emplace(begin, size);
  if (room > size) free_.emplace(begin + size, room - size);
  free_.erase(range);
  return begin;
}

void Arena::give(std::byte* block) noexcept {
  // Merges neighbours, but not across pieces: each piece returns to the pool as a whole.
  const auto join = [this](Ranges::iterator left, Ranges::iterator right) {
    if (left->first + left->second != right->first || pieces_.contains(right->first)) return;
    left->second += right->second;
    free_.erase(right);
  };
  const auto own = free_.insert(taken_.extract(block)).position;
  if (const auto next = std::next(own); next != free_.end()) join(own, next);
  if (own != free_.begin()) join(std::prev(own), own);
}

// Before `close` nothing returns: graphs still use the memory.
void Arena::give_back_pieces() noexcept {
  for (auto piece = pieces_.begin(); closed_ && piece != pieces_.end();) {
    const auto [begin, bytes] = *piece;
    const auto range = free_.find(begin);
    const bool whole = range != free_.end() && range->second == bytes;
    piece = whole ? pieces_.erase(piece) : std::next(piece);
    if (!whole) continue;
    free_.erase(range);
    arenas().pieces.erase(begin);
    state_.give(begin, bytes);
  }
}

void Arena::close() noexcept {
  const std::scoped_lock lock(arenas().mutex);
  // Removing the last piece from the list may drop the last owner of this arena.
  const auto alive = shared_from_this();
  closed_ = true;
  give_back_pieces();
}

bool Arena::holds(const void* pointer) const noexcept {
  const std::scoped_lock lock(arenas().mutex);
  return arenas().find(pointer).get() == this;
}

bool Arena::give_back(void* block) noexcept {
  const std::scoped_lock lock(arenas().mutex);
  const auto arena = arenas().find(block);
  if (!arena) return false;
  arena->give(static_cast<std::byte*>(block));
  arena->give_back_pieces();
  return true;
}

}  // namespace fq::cuda
