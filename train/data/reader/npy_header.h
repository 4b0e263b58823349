#pragma once

/// The header of .npy files, versions 1 to 3 (NumPy's format.py).

#include "fakequant/train/data/reader/array_file.h"

namespace fq::detail {

struct NpyHeader {
  ElementType type;
  Shape shape;
  bool fortran_order = false;
};

/// Reads it from the beginning of `bytes`. Throws FileError for what is none, naming objects, records,
/// complex numbers and other types that are not read, and the way to others.
[[nodiscard]] NpyHeader read_npy_header(ByteStream& bytes);

}  // namespace fq::detail
