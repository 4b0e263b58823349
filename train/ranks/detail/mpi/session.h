#pragma once

/// MPI in this process.

#include <string>

namespace fq::mpi {

/// Begins MPI, unless somebody has; what it began ends with the process.
void begin();
/// "Open MPI v4.1.4".
[[nodiscard]] std::string library();

}  // namespace fq::mpi
