#pragma once

/// MPI in this process.

namespace fq::mpi {

/// Begins MPI, unless somebody has; what it began ends with the process.
void begin();

}  // namespace fq::mpi
