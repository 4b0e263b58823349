#pragma once

/// The implementation of Hdf5Rows, and the checks before any element is read. Needs <hdf5.h>.

#include <cstddef>
#include <functional>

#include "fakequant/core/blocks/shape.h"
#include "fakequant/core/io/detail/hdf5.h"
#include "fakequant/core/io/detail/hdf5_filters.h"
#include "fakequant/core/io/detail/hdf5_reader.h"

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

struct Hdf5Rows::Body {
  std::string path, name;
  h5::Dataset dataset;
  h5::Type file_type, memory_type;
  DType dtype = DType::u8;
  Shape shape;
  std::int64_t row_bytes = 0;
  std::int64_t chunk_rows = 1;

  /// Checks everything that later reads rely on. Throws FileError.
  Body(const std::string& path, const std::string& name, h5::Dataset open, std::int64_t file_bytes);
  [[noreturn]] void refuse(const std::string& why) const;
  /// Rejects `count` pieces of `bytes` bytes.
  [[noreturn]] void refuse_claim(std::int64_t count, std::int64_t bytes) const;
  /// Returns the number of bytes that the file stores for the dataset, possibly compressed.
  [[nodiscard]] std::int64_t stored_bytes() const;
  /// Whether the stored bytes can contain all rows.
  [[nodiscard]] bool is_stored() const;
  /// Reads rows [begin, end) as Hdf5Rows::read does.
  void read(std::int64_t begin, std::int64_t end, std::byte* out) const;

 private:
  void check_layout(hid_t creation) const;
  void take_type();
  void take_shape();
  void check_whole(hid_t creation) const;
  void take_chunks(hid_t creation);
  void check_rows() const;

  void read_selected(std::int64_t begin, std::int64_t end, std::byte* out) const;
  void read_chunks(std::int64_t begin, std::int64_t end, std::byte* out) const;
  /// A stored chunk and the mask of its skipped filters. Empty if the chunk was never written.
  struct StoredChunk {
    std::vector<std::byte> bytes;
    std::uint32_t skipped;
  };
  [[nodiscard]] StoredChunk stored_chunk(const Shape& origin, std::size_t bytes) const;
  void check_unwritten(const std::vector<hsize_t>& offset) const;
  /// Returns all elements of a chunk as `dtype`; empty if the chunk was never written.
  [[nodiscard]] std::vector<std::byte> read_chunk(const Shape& origin) const;
  [[nodiscard]] std::vector<std::byte> converted(std::vector<std::byte> chunk, std::size_t elements) const;
  void fill(std::byte* out, std::size_t bytes) const;

  std::int64_t file_bytes_;
  std::int64_t file_element_bytes_ = 0;
  std::optional<ChunkGrid> grid_;  // for chunked datasets
  std::optional<h5::ChunkFilters> filters_;
  bool plain_edges_ = false;  // chunks that extend beyond the edge are not filtered
  std::vector<std::byte> fill_value_;
};

}  // namespace fq::detail
