#pragma once

/// The parts of our state files.

#include "fakequant/core/io/detail/state_header.h"
#include "fakequant/core/io/state_dict.h"

namespace fq::detail {

/// The state in a file, by its listing: HDF5 is not asked. Each byte is read once, and is in the checksums
/// that are compared: of each part, and of the body. They say that a file is whole, not who made it: what it
/// claims is compared with what it has. Throws FileError, ArgumentError for names that no state has, and
/// json::exception for a listing that is none; of a file whose body is damaged (`verify_body`) any of these.
[[nodiscard]] StateDict read_state(const FileReader& file, const StateHeader& header);

}  // namespace fq::detail
