#pragma once

/// What was done to the chunks of a dataset before they were stored, taken back here: HDF5 itself would hand
/// out whatever memory lies behind a chunk that expands to less than its size, and allocate a thousand times
/// the file for one that expands to more. It is not a public header: it needs <hdf5.h>.

#include <cstddef>
#include <stdexcept>
#include <vector>

#include "fakequant/core/io/detail/hdf5.h"

namespace fq::detail::h5 {

/// What is wrong with a chunk or its filters, to go on after "file:dataset ".
class BadChunk : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// gzip, shuffle and fletcher32, in any order, gzip once.
class ChunkFilters {
 public:
  /// Of a dataset with these creation properties. Throws BadChunk for other filters.
  explicit ChunkFilters(hid_t creation);

  [[nodiscard]] bool empty() const noexcept { return filters_.empty(); }
  /// The `bytes` bytes that `stored` was made of; filter i was left out where bit i of `skipped` is set.
  /// Throws BadChunk when it expands to anything else, before memory is taken for it.
  [[nodiscard]] std::vector<std::byte> decode(std::vector<std::byte> stored, unsigned skipped,
                                              std::size_t bytes) const;

 private:
  struct Filter {
    H5Z_filter_t id;
    std::size_t element_bytes;  // of shuffle
  };
  std::vector<Filter> filters_;
};

}  // namespace fq::detail::h5
