// The functions of NCCL that core calls, over the processes of MPI, each of which has a simulated device. A
// sum is work of the stream, as on a GPU: ranks meet when they wait for it.

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <mpi.h>
#include <nccl.h>

#include "simulated/state.h"

using namespace fq::simulated;

extern "C" {

const char* ncclGetErrorString(ncclResult_t code) { return code == ncclInvalidUsage ? "usage" : "argument"; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id->internal, 7, sizeof id->internal);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
  int own = 0, all = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &own);
  MPI_Comm_size(MPI_COMM_WORLD, &all);
  const bool given = std::ranges::all_of(id.internal, [](char byte) { return byte == 7; });
  if (own != rank || all != size || !given) return ncclInvalidUsage;
  auto* made = new MPI_Comm;
  MPI_Comm_dup(MPI_COMM_WORLD, made);
  *comm = reinterpret_cast<ncclComm_t>(made);
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete reinterpret_cast<MPI_Comm*>(comm);
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  if (type != ncclInt64 || op != ncclSum) return ncclInvalidArgument;
  const std::scoped_lock lock(state().mutex);
  submit(stream, [=, ranks = *reinterpret_cast<MPI_Comm*>(comm)] {
    const auto* own = static_cast<const std::int64_t*>(from);
    std::vector<std::int64_t> sums(own, own + count);
    MPI_Allreduce(MPI_IN_PLACE, sums.data(), static_cast<int>(count), MPI_INT64_T, MPI_SUM, ranks);
    std::ranges::copy(sums, static_cast<std::int64_t*>(to));
  });
  return ncclSuccess;
}

}  // extern "C"
