#pragma once

/// Positions of chunks in an array.

#include <cstddef>
#include <functional>

#include "fakequant/core/blocks/shape.h"

namespace fq::detail {

/// An array of shape `sizes`, split into chunks of shape `chunk` (of the same rank, with sizes of at least
/// 1). Chunks at the far edges are padded to full size. Rows are along the first axis.
class ChunkGrid {
 public:
  ChunkGrid(Shape sizes, Shape chunk, std::int64_t element_bytes);

  [[nodiscard]] std::int64_t chunk_elements() const { return numel(chunk_); }
  /// Whether the chunk at `origin` is padded.
  [[nodiscard]] bool is_padded(const Shape& origin) const;
  /// Calls `visit` with the position of the first element of each chunk that overlaps the rows [begin, end).
  void visit_chunks(std::int64_t begin, std::int64_t end,
                    const std::function<void(const Shape&)>& visit) const;
  /// Copies the part of a chunk in the rows [begin, end) to its position in `rows`, a buffer of these rows.
  /// `origin` is the position of the chunk and `from` points to its elements.
  void copy(const Shape& origin, const std::byte* from, std::int64_t begin, std::int64_t end,
            std::byte* rows) const;

 private:
  Shape sizes_, chunk_;
  std::int64_t element_bytes_;
};

}  // namespace fq::detail
