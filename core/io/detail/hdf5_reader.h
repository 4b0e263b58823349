#pragma once

/// Reading HDF5 files of anyone's making, a row range at a time. Nothing a file claims is believed before it
/// is compared with the size of the file.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fakequant/core/tensor.h"

namespace fq::detail {

/// A dataset of numbers: rows are along the first axis.
class Hdf5Rows {
 public:
  Hdf5Rows(Hdf5Rows&&) noexcept;
  Hdf5Rows& operator=(Hdf5Rows&&) noexcept;
  ~Hdf5Rows();

  [[nodiscard]] const Shape& shape() const noexcept;
  /// What elements are read as: f32, f64, f16, i8, u8, i16, i32 or i64; unsigned integers of 16 bits and more
  /// as the next wider signed type, those past 2^63 saturated.
  [[nodiscard]] DType dtype() const noexcept;
  [[nodiscard]] std::int64_t row_bytes() const noexcept;
  /// Rows that share a chunk of the file; 1 when rows can be read one by one.
  [[nodiscard]] std::int64_t chunk_rows() const noexcept;
  /// Rows [begin, end), row-major, into (end - begin) * row_bytes() bytes. Throws FileError. Thread-safe.
  void read(std::int64_t begin, std::int64_t end, void* out) const;
  /// The whole dataset. Throws FileError when it claims far more than its file can hold.
  [[nodiscard]] Tensor read_all() const;

 private:
  friend class Hdf5Reader;
  struct Body;
  explicit Hdf5Rows(std::unique_ptr<Body> body);
  std::unique_ptr<Body> body_;
};

/// A file, open to read. Throws FileError, in one line, for whatever is wrong with it.
class Hdf5Reader {
 public:
  explicit Hdf5Reader(std::string path);
  ~Hdf5Reader();
  Hdf5Reader(const Hdf5Reader&) = delete;  // owns the open file
  Hdf5Reader& operator=(const Hdf5Reader&) = delete;

  [[nodiscard]] const std::string& path() const noexcept;
  /// Whether there is a group or dataset of that path. Throws FileError when the way there has a soft or
  /// external link: none is followed.
  [[nodiscard]] bool has(const std::string& name) const;
  /// Names in a group, at most 50.
  [[nodiscard]] std::vector<std::string> children(const std::string& group) const;
  /// Opens a dataset and checks how it is stored, its type, sizes, chunks and filters.
  [[nodiscard]] Hdf5Rows rows(const std::string& dataset) const;
  /// The values of a numeric attribute of a group or dataset; nullopt without it.
  [[nodiscard]] std::optional<std::vector<double>> numbers(const std::string& object,
                                                           const std::string& attribute) const;
  /// The values of an attribute of strings, of fixed or variable length, as UTF-8: bytes that are none become
  /// U+FFFD. Nullopt without it and for one of another type. Throws FileError for more than 2^20 strings or
  /// 16 MiB. Strings of variable length lie in a heap that HDF5 reads without checks: only their number is known
  /// before, and a damaged heap is HDF5's to survive.
  [[nodiscard]] std::optional<std::vector<std::string>> texts(const std::string& object,
                                                              const std::string& attribute) const;
  /// Whether there is an attribute of that name, of whatever type.
  [[nodiscard]] bool has_attribute(const std::string& object, const std::string& attribute) const;
  /// Whether there is one of integers or floats.
  [[nodiscard]] bool has_numbers(const std::string& object, const std::string& attribute) const;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace fq::detail
