#include "fakequant/train/data/detail/block_cache.h"

#include <algorithm>

namespace fq::detail {
namespace {

constexpr std::int64_t kSmallBlock = std::int64_t{256} << 10;
constexpr std::int64_t kLargeBlock = std::int64_t{32} << 20;

std::int64_t choose_block_rows(const Hdf5Rows& rows, std::int64_t cache_bytes) {
  const std::int64_t row = std::max<std::int64_t>(rows.row_bytes(), 1);
  const std::int64_t most = std::max<std::int64_t>(std::min(kLargeBlock, cache_bytes / 4) / row, 1);
  const std::int64_t chunk = rows.chunk_rows();
  if (chunk >= most) return most;
  const std::int64_t wanted = std::clamp<std::int64_t>(kSmallBlock / row, 1, most);
  return std::max<std::int64_t>(wanted / chunk, 1) * chunk;
}

}  // namespace

BlockCache::BlockCache(Hdf5Rows rows, std::int64_t bytes)
    : rows_(std::move(rows)), block_rows_(choose_block_rows(rows_, bytes)) {
  const std::int64_t block_bytes = std::max<std::int64_t>(block_rows_ * rows_.row_bytes(), 1);
  capacity_ = std::clamp<std::int64_t>(bytes / block_bytes, 2, std::max<std::int64_t>(count(), 2));
}

BlockCache::Block BlockCache::get(std::int64_t index) {
  const std::lock_guard lock(mutex_);
  if (const auto found = index_.find(index); found != index_.end()) {
    latest_.splice(latest_.begin(), latest_, found->second);
    return found->second->second;
  }
  while (static_cast<std::int64_t>(latest_.size()) >= capacity_) {
    index_.erase(latest_.back().first);
    latest_.pop_back();
  }
  const std::int64_t begin = index * block_rows_, end = std::min(begin + block_rows_, rows_.shape()[0]);
  auto bytes =
      std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>((end - begin) * rows_.row_bytes()));
  rows_.read(begin, end, bytes->data());
  latest_.emplace_front(index, std::move(bytes));
  index_[index] = latest_.begin();
  return latest_.front().second;
}

}  // namespace fq::detail
