#pragma once

/// What Hdf5Rows holds, and the checks before anything of it is read; not a public header: it needs <hdf5.h>.

#include "fakequant/core/io/hdf5.h"
#include "fakequant/core/io/hdf5_reader.h"

namespace fq::detail {

struct Hdf5Rows::Body {
  std::string path, name;
  h5::Dataset dataset;
  h5::Type memory_type;
  DType dtype = DType::u8;
  Shape shape;
  std::int64_t row_bytes = 0;
  std::int64_t chunk_rows = 1;

  /// Checks everything that a later read relies on. Throws FileError.
  Body(const std::string& path, const std::string& name, h5::Dataset open, std::int64_t file_bytes);
  [[noreturn]] void refuse(const std::string& why) const;

 private:
  void take_type();
  void take_shape();
  void check_layout(std::int64_t file_bytes);
  void check_chunks(hid_t creation);
  void check_filters(hid_t creation) const;
};

}  // namespace fq::detail
