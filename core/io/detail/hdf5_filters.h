#pragma once

/// Decodes the filters of dataset chunks. HDF5's own decoder is not safe: for a chunk that expands to less
/// than its size it returns memory after the chunk, and for one that expands to more it allocates up to a
/// thousand times the file size. Not a public header: it needs <hdf5.h>.

#include <cstddef>
#include <stdexcept>
#include <vector>

#include "fakequant/core/io/detail/hdf5.h"

namespace fq::detail::h5 {

/// An invalid chunk or filter. The message continues "file:dataset ".
class BadChunk : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The filters gzip (once), shuffle and fletcher32, in any order.
class ChunkFilters {
 public:
  /// Reads the filters from a dataset's creation properties. Throws BadChunk for other filters.
  explicit ChunkFilters(hid_t creation);

  [[nodiscard]] bool empty() const noexcept { return filters_.empty(); }
  /// Decodes `stored` to `bytes` bytes; filter i is skipped if bit i of `skipped` is set. Throws BadChunk if
  /// the result has another size, before allocating memory for it.
  [[nodiscard]] std::vector<std::byte> decode(std::vector<std::byte> stored, unsigned skipped,
                                              std::size_t bytes) const;

 private:
  struct Filter {
    H5Z_filter_t id;
    std::size_t element_bytes;  // for shuffle
  };
  std::vector<Filter> filters_;
};

}  // namespace fq::detail::h5
