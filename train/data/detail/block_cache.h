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
  /// At least two blocks are kept, and `bytes` bytes.
  BlockCache(Hdf5Rows rows, std::int64_t bytes);

  [[nodiscard]] const Hdf5Rows& rows() const noexcept { return rows_; }
  [[nodiscard]] std::int64_t block_rows() const noexcept { return block_rows_; }
  [[nodiscard]] std::int64_t count() const noexcept {
    return (rows_.shape()[0] + block_rows_ - 1) / block_rows_;
  }
  /// How many blocks are kept.
  [[nodiscard]] std::int64_t capacity() const noexcept { return capacity_; }
  /// Block `index`: rows [index * block_rows(), ..). It stays valid while held. Throws FileError.
  /// Thread-safe.
  [[nodiscard]] Block get(std::int64_t index);

 private:
  using Entry = std::pair<std::int64_t, Block>;

  Hdf5Rows rows_;
  std::int64_t block_rows_ = 1;
  std::int64_t capacity_ = 2;
  std::mutex mutex_;
  std::list<Entry> latest_;  // most recently used first
  std::unordered_map<std::int64_t, std::list<Entry>::iterator> index_;
};

}  // namespace fq::detail
