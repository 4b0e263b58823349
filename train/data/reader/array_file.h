#pragma once

/// Arrays of other programs: NumPy's .npy and .npz, and IDX, the format of MNIST, also as gzip.

#include <memory>
#include <string>
#include <vector>

#include "fakequant/core/tensor.h"
#include "fakequant/train/data/reader/byte_stream.h"

namespace fq::detail {

/// How the elements of an array lie in its file.
struct ElementType {
  char kind = 'f';  ///< b, i, u, f: numbers; S, U: text
  int bytes = 4;    ///< of one element
  bool big_endian = false;
};

/// An array [N, ..], read from its first row on. Integers are u8, i8, i16 or, where they need more, i32 and
/// i64, floats f16, f32 and f64; booleans are u8.
class ArrayFile {
 public:
  /// Takes an array that begins at the next byte of `bytes`. A text array has dtype u8 and texts().
  ArrayFile(std::unique_ptr<ByteStream> bytes, ElementType type, Shape shape, bool fortran_order);

  /// For messages: the path, or "a.npz:x.npy".
  [[nodiscard]] const std::string& place() const noexcept { return place_; }
  [[nodiscard]] const Shape& shape() const noexcept { return shape_; }
  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  /// Whether values are unsigned integers of 16 bits, which are read as i32.
  [[nodiscard]] bool is_u16() const noexcept { return type_.kind == 'u' && type_.bytes == 2; }
  [[nodiscard]] bool is_bool() const noexcept { return type_.kind == 'b'; }
  [[nodiscard]] bool is_text() const noexcept { return type_.kind == 'S' || type_.kind == 'U'; }
  [[nodiscard]] std::int64_t row_elements() const noexcept { return row_elements_; }
  /// The next row, row-major, as dtype(). Throws FileError when the file ends early.
  void next_row(void* to);
  /// All rows that are left, at most 2^31 bytes. Throws FileError for more.
  [[nodiscard]] Tensor read_all();
  /// All elements of a text array [N], as UTF-8.
  [[nodiscard]] std::vector<std::string> texts();

 private:
  void take_rows_of_columns();
  void convert(const std::byte* from, std::byte* to, std::int64_t count) const;

  std::unique_ptr<ByteStream> bytes_;
  std::string place_;
  ElementType type_;
  Shape shape_;
  DType dtype_;
  bool fortran_order_;
  std::int64_t row_elements_;
  std::vector<std::byte> row_, all_;  // as the file has them; all rows of an array in Fortran order
  std::int64_t rows_read_ = 0;
};

/// Parses the header of a .npy file. Throws FileError for what is none, for objects (which are never
/// unpickled), records, complex and other types, and more elements than its file can hold.
[[nodiscard]] ArrayFile open_npy(std::unique_ptr<ByteStream> bytes);
/// A .npy file, or the array `key` of a .npz archive.
[[nodiscard]] ArrayFile open_npy(const std::string& path, const std::string& key = {});
/// Names of the arrays of a .npz archive, without ".npy"; none for another file.
[[nodiscard]] std::vector<std::string> npz_keys(const std::string& path);
/// An IDX file, or one in gzip.
[[nodiscard]] ArrayFile open_idx(const std::string& path);

}  // namespace fq::detail
