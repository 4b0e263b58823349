#pragma once

/// The parts of our state files.

#include "fakequant/core/io/detail/state_header.h"
#include "fakequant/core/io/state_dict.h"

namespace fq::detail {

/// The state in a file whose checksums hold, by its listing: HDF5 is not asked. Checksums say that a file is
/// whole, not who made it: what it claims is compared with what it has. Throws FileError, and ArgumentError
/// for names that no state has.
[[nodiscard]] StateDict read_state(const FileReader& file, const StateHeader& header);

}  // namespace fq::detail
