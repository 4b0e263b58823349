#pragma once

/// BlockCache: a cache of the most recently used rows of an HDF5 dataset.

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "fakequant/core/io/detail/hdf5_reader.h"

namespace fq::detail {

class BlockCache {
 public:
  using Block = std::shared_ptr<const std::vector<std::byte>>;

  /// Blocks follow the chunks of the file: whole chunks if they are small, parts if they are huge. Keeps
  /// `bytes` bytes, and at least two blocks. With `by_rows`, reads and keeps pieces instead of whole blocks:
  /// 4 KiB, a row or a chunk.
  BlockCache(Hdf5Rows rows, std::int64_t bytes, bool by_rows);

  [[nodiscard]] const Hdf5Rows& rows() const noexcept { return rows_; }
  [[nodiscard]] std::int64_t block_rows() const noexcept { return block_rows_; }
  [[nodiscard]] std::int64_t count() const noexcept {
    return (rows_.shape()[0] + block_rows_ - 1) / block_rows_;
  }
  /// Returns the number of blocks that fit the cache.
  [[nodiscard]] std::int64_t capacity() const noexcept { return capacity_; }
  /// Returns the number of rows that are read at once, at most block_rows().
  [[nodiscard]] std::int64_t piece_rows() const noexcept { return piece_rows_; }
  /// Returns piece `index`, the rows [index * piece_rows(), ..). The piece is valid while it is held. Throws
  /// FileError. Thread-safe.
  [[nodiscard]] Block get(std::int64_t index);
  /// Returns the first block. Caches it if it is a piece.
  [[nodiscard]] Block first_block() { return piece_rows_ == block_rows_ ? get(0) : read(0, block_rows_); }

 private:
  using Entry = std::pair<std::int64_t, Block>;

  [[nodiscard]] Block read(std::int64_t begin, std::int64_t end) const;

  Hdf5Rows rows_;
  std::int64_t block_rows_ = 1, piece_rows_ = 1;
  std::int64_t capacity_ = 2, pieces_ = 2;  // blocks and pieces in the cache
  std::mutex mutex_;
  std::list<Entry> latest_;  // most recently used first
  std::unordered_map<std::int64_t, std::list<Entry>::iterator> index_;
};

}  // namespace fq::detail
