#pragma once

/// Runs of rows of a dataset, the latest used kept in memory.

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

  /// Blocks follow the chunks of the file: whole ones where they are small, parts where they are huge.
  /// At least two blocks are kept, and `bytes` bytes. `by_rows` reads and keeps pieces of them, of 4 KiB or a
  /// row or a chunk, in place of whole blocks.
  BlockCache(Hdf5Rows rows, std::int64_t bytes, bool by_rows);

  [[nodiscard]] const Hdf5Rows& rows() const noexcept { return rows_; }
  [[nodiscard]] std::int64_t block_rows() const noexcept { return block_rows_; }
  [[nodiscard]] std::int64_t count() const noexcept {
    return (rows_.shape()[0] + block_rows_ - 1) / block_rows_;
  }
  /// How many blocks are kept.
  [[nodiscard]] std::int64_t capacity() const noexcept { return capacity_; }
  /// What is read at once: no more than block_rows().
  [[nodiscard]] std::int64_t piece_rows() const noexcept { return piece_rows_; }
  /// Piece `index`: rows [index * piece_rows(), ..). It stays valid while held. Throws FileError.
  /// Thread-safe.
  [[nodiscard]] Block get(std::int64_t index);
  /// The first block, which is kept if it is a piece.
  [[nodiscard]] Block first_block() { return piece_rows_ == block_rows_ ? get(0) : read(0, block_rows_); }

 private:
  using Entry = std::pair<std::int64_t, Block>;

  [[nodiscard]] Block read(std::int64_t begin, std::int64_t end) const;

  Hdf5Rows rows_;
  std::int64_t block_rows_ = 1, piece_rows_ = 1;
  std::int64_t capacity_ = 2, pieces_ = 2;  // that are kept
  std::mutex mutex_;
  std::list<Entry> latest_;  // most recently used first
  std::unordered_map<std::int64_t, std::list<Entry>::iterator> index_;
};

}  // namespace fq::detail
