#include "fakequant/train/data/detail/block_cache.h"

#include <algorithm>

namespace fq::detail {
namespace {

// Blocks have 256 KiB where chunks allow it, and at most 32 MiB or a quarter of the cache.
constexpr std::int64_t kSmallBlock = std::int64_t{256} << 10;
constexpr std::int64_t kPiece = 4096;  // bytes of a disk read
constexpr std::int64_t kLargeBlock = std::int64_t{32} << 20;

std::int64_t choose_block_rows(const Hdf5Rows& rows, std::int64_t cache_bytes) {
  const std::int64_t row = std::max<std::int64_t>(rows.row_bytes(), 1);
  const std::int64_t most = std::max<std::int64_t>(std::min(kLargeBlock, cache_bytes / 4) / row, 1);
  const std::int64_t chunk = rows.chunk_rows();
  // A chunk above the limit is read in parts, which bounds the memory.
  if (chunk >= most) return most;
  // A block is a whole number of chunks, so that no chunk is decompressed for two blocks.
  const std::int64_t wanted = std::clamp<std::int64_t>(kSmallBlock / row, 1, most);
  return std::max<std::int64_t>(wanted / chunk, 1) * chunk;
}

std::int64_t choose_piece_rows(const Hdf5Rows& rows, std::int64_t block_rows) {
  const std::int64_t wanted =
      std::max(kPiece / std::max<std::int64_t>(rows.row_bytes(), 1), rows.chunk_rows());
  return wanted >= block_rows ? block_rows : wanted / rows.chunk_rows() * rows.chunk_rows();
}

/// Returns how many runs of `run` rows fit the cache.
std::int64_t cached_runs(const Hdf5Rows& rows, std::int64_t run, std::int64_t bytes) {
  const std::int64_t all = (rows.shape()[0] + run - 1) / run;
  return std::clamp<std::int64_t>(bytes / std::max<std::int64_t>(run * rows.row_bytes(), 1), 2,
                                  std::max<std::int64_t>(all, 2));
}

}  // namespace

BlockCache::BlockCache(Hdf5Rows rows, std::int64_t bytes, bool by_rows)
    : rows_(std::move(rows)),
      block_rows_(choose_block_rows(rows_, bytes)),
      piece_rows_(by_rows ? choose_piece_rows(rows_, block_rows_) : block_rows_),
      capacity_(cached_runs(rows_, block_rows_, bytes)),
      pieces_(cached_runs(rows_, piece_rows_, bytes)) {}

BlockCache::Block BlockCache::get(std::int64_t index) {
  // The lock is held while reading, so that threads that want the same piece read it once.
  const std::lock_guard lock(mutex_);
  if (const auto found = index_.find(index); found != index_.end()) {
    // Least recently used pieces are at the end of the list.
    latest_.splice(latest_.begin(), latest_, found->second);
    return found->second->second;
  }
  // Evicts before reading, so that the cache never exceeds its bytes.
  while (static_cast<std::int64_t>(latest_.size()) >= pieces_) {
    index_.erase(latest_.back().first);
    latest_.pop_back();
  }
  latest_.emplace_front(index, read(index * piece_rows_, (index + 1) * piece_rows_));
  index_[index] = latest_.begin();
  return latest_.front().second;
}

BlockCache::Block BlockCache::read(std::int64_t begin, std::int64_t end) const {
  end = std::min(end, rows_.shape()[0]);
  auto bytes =
      std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>((end - begin) * rows_.row_bytes()));
  rows_.read(begin, end, bytes->data());
  return bytes;
}

}  // namespace fq::detail
