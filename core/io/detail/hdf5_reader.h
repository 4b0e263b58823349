#pragma once

/// Reads HDF5 files from any source, a range of rows at a time. Every size that a file claims is compared
/// with the size of the file before it is used.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fakequant/core/tensor.h"

namespace fq::detail {

/// A dataset of numbers. Rows are along the first axis.
class Hdf5Rows {
 public:
  Hdf5Rows(Hdf5Rows&&) noexcept;
  Hdf5Rows& operator=(Hdf5Rows&&) noexcept;
  ~Hdf5Rows();

  [[nodiscard]] const Shape& shape() const noexcept;
  /// Type of the elements as read: f32, f64, f16, i8, u8, i16, i32 or i64. Unsigned integers of 16 bits and
  /// more become the next wider signed type; values above 2^63 saturate.
  [[nodiscard]] DType dtype() const noexcept;
  [[nodiscard]] std::int64_t row_bytes() const noexcept;
  /// Number of rows per chunk of the file; 1 if rows can be read one by one.
  [[nodiscard]] std::int64_t chunk_rows() const noexcept;
  /// Reads rows [begin, end), row-major, into (end - begin) * row_bytes() bytes. Throws FileError.
  /// Thread-safe.
  void read(std::int64_t begin, std::int64_t end, void* out) const;
  /// Reads the whole dataset. Throws FileError if it claims far more than its file can hold.
  [[nodiscard]] Tensor read_all() const;

 private:
  friend class Hdf5Reader;
  struct Body;
  explicit Hdf5Rows(std::unique_ptr<Body> body);
  std::unique_ptr<Body> body_;
};

/// A file opened for reading. All functions throw a one-line FileError for an invalid file.
class Hdf5Reader {
 public:
  explicit Hdf5Reader(std::string path);
  ~Hdf5Reader();
  Hdf5Reader(const Hdf5Reader&) = delete;  // owns the open file
  Hdf5Reader& operator=(const Hdf5Reader&) = delete;

  [[nodiscard]] const std::string& path() const noexcept;
  /// Whether there is a group or dataset with this path. Throws FileError if the path contains a soft or
  /// external link; these are not followed.
  [[nodiscard]] bool has(const std::string& name) const;
  /// Returns the names in a group, at most 50.
  [[nodiscard]] std::vector<std::string> children(const std::string& group) const;
  /// Opens a dataset and checks its storage, type, sizes, chunks and filters.
  [[nodiscard]] Hdf5Rows rows(const std::string& dataset) const;
  /// Returns the values of a numeric attribute of a group or dataset; nullopt if it does not exist.
  [[nodiscard]] std::optional<std::vector<double>> numbers(const std::string& object,
                                                           const std::string& attribute) const;
  /// Returns the values of a string attribute (fixed or variable length) as UTF-8, with U+FFFD for invalid
  /// bytes. Returns nullopt if it does not exist or has another type. Throws FileError for more than 2^20
  /// strings or 16 MiB. Strings of variable length are in a heap that HDF5 reads without checks. Only their
  /// number is checked first; a damaged heap is left to HDF5.
  [[nodiscard]] std::optional<std::vector<std::string>> texts(const std::string& object,
                                                              const std::string& attribute) const;
  /// Whether there is an attribute of that name and any type.
  [[nodiscard]] bool has_attribute(const std::string& object, const std::string& attribute) const;
  /// Whether there is an attribute of integers or floats with that name.
  [[nodiscard]] bool has_numbers(const std::string& object, const std::string& attribute) const;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace fq::detail
