#pragma once

/// The HDF5 part of our files.

#include "fakequant/core/io/detail/file_reader.h"
#include "fakequant/core/io/state_dict.h"

namespace fq::detail {

/// The state in a file whose checksums hold. They say that it is whole, not who made it: what it claims is
/// compared with what it has. Throws FileError, ArgumentError for names that no state has, h5::Replaced when
/// another file was renamed over it.
[[nodiscard]] StateDict read_state(const FileReader& file);

}  // namespace fq::detail
