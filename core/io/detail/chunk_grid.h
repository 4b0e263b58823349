#pragma once

/// Where chunks of an array lie in it.

#include <cstddef>
#include <functional>

#include "fakequant/core/blocks/shape.h"

namespace fq::detail {

/// An array of shape `sizes` cut into chunks of shape `chunk` (the same rank, sizes of 1 or more); those at
/// the far edges are padded to whole ones. Rows are along the first axis.
class ChunkGrid {
 public:
  ChunkGrid(Shape sizes, Shape chunk, std::int64_t element_bytes);

  [[nodiscard]] std::int64_t chunk_elements() const { return numel(chunk_); }
  /// Whether the chunk there is padded.
  [[nodiscard]] bool at_edge(const Shape& origin) const;
  /// Calls `visit` with the first element's place of each chunk that has one of the rows [begin, end).
  void for_each(std::int64_t begin, std::int64_t end, const std::function<void(const Shape&)>& visit) const;
  /// Copies what the chunk at `origin`, all of whose elements lie at `from`, has of the rows [begin, end) to
  /// its place in `rows`, which holds these rows.
  void copy(const Shape& origin, const std::byte* from, std::int64_t begin, std::int64_t end,
            std::byte* rows) const;

 private:
  Shape sizes_, chunk_;
  std::int64_t element_bytes_;
};

}  // namespace fq::detail
