#pragma once

/// Writing HDF5 files for anyone to read, a run of rows at a time: they may be larger than memory.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fakequant/core/tensor.h"

namespace fq::detail {

/// A new file beside `path`, in its place from `commit` on (atomic_file.h). Names are paths: groups are made
/// on the way. The same calls give the same bytes.
class Hdf5Writer {
 public:
  /// Throws as AtomicFile, and FileError for a device or pipe.
  explicit Hdf5Writer(const std::string& path);
  ~Hdf5Writer();
  Hdf5Writer(const Hdf5Writer&) = delete;  // owns the open file
  Hdf5Writer& operator=(const Hdf5Writer&) = delete;

  /// Begins a dataset [rows, ..row] in chunks along its first axis; `rows` is the most there will be.
  /// `dtype` has 8 bits or more. Throws ArgumentError for a name that is taken.
  void create(const std::string& name, DType dtype, const Shape& row, std::int64_t rows);
  /// Adds `count` rows, row-major. Throws SystemError when the disk is full, here or in a later call.
  void append(const std::string& name, const void* rows, std::int64_t count);
  [[nodiscard]] std::int64_t rows(const std::string& name) const;
  /// A dataset of all elements of a row-major tensor on the CPU.
  void write(const std::string& name, const Tensor& values);

  /// Attributes of a group or dataset; "/" is the file. `numbers` of one element is a scalar.
  void attribute(const std::string& object, const std::string& name, std::span<const double> numbers);
  void attribute(const std::string& object, const std::string& name, const std::string& text);
  /// Strings of fixed length; as a JSON list in one text where they are one, or more than there is room for.
  void attribute(const std::string& object, const std::string& name, const std::vector<std::string>& texts);

  /// Throws SystemError when the disk is full; the file at `path` is then as it was.
  void commit();

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace fq::detail
