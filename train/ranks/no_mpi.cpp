#include <cstdlib>

#include "fakequant/core/detail/check.h"
#include "fakequant/train/ranks/communicator.h"

namespace fq {

bool has_mpi() noexcept { return false; }

std::string mpi_library() { return {}; }

std::shared_ptr<Communicator> started_ranks(double) {
  FQ_CHECK(
      launched().ranks <= 1, "ranks",
      "{} processes were started, and this build has no MPI: install libopenmpi-dev (or another MPI) and "
      "build again with -DFAKEQUANT_MPI=ON, or start one process",
      launched().ranks);
  return one_rank();
}

void abort_ranks(int status) { std::_Exit(status); }

}  // namespace fq
