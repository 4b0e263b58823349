// The functions of NCCL that core calls, over MPI processes with one simulated device each. A
// sum is work of the stream, as on a GPU: ranks meet when they wait for it.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <nccl.h>

#include "fakequant/train/ranks/detail/mpi/module/mpi_header.h"
#include "simulated/state.h"

using namespace fq::simulated;

namespace {

void submit_locked(cudaStream_t stream, Work work) {
  const std::scoped_lock lock(state().mutex);
  submit(stream, std::move(work));
}

}  // namespace

extern "C" {

const char* ncclGetErrorString(ncclResult_t code) {
  return code == ncclSystemError ? "system" : code == ncclInvalidUsage ? "usage" : "argument";
}

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

ncclResult_t ncclCommAbort(ncclComm_t comm) { return ncclCommDestroy(comm); }

/// FAKEQUANT_SIMULATED_NCCL_ERROR: the network to the other ranks is lost.
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* status) {
  *status = std::getenv("FAKEQUANT_SIMULATED_NCCL_ERROR") != nullptr ? ncclSystemError : ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  if (type != ncclInt64 || op != ncclSum) return ncclInvalidArgument;
  auto sums = std::make_shared<std::vector<std::int64_t>>(count);
  auto request = std::make_shared<MPI_Request>(MPI_REQUEST_NULL);
  submit_locked(stream, [=] { std::copy_n(static_cast<const std::int64_t*>(from), count, sums->begin()); });
  cudaStreamSynchronize(stream);  // a GPU proceeds without its host
  MPI_Iallreduce(MPI_IN_PLACE, sums->data(), static_cast<int>(count), MPI_INT64_T, MPI_SUM,
                 *reinterpret_cast<MPI_Comm*>(comm), request.get());
  submit_locked(stream, [=] {
    MPI_Wait(request.get(), MPI_STATUS_IGNORE);
    std::ranges::copy(*sums, static_cast<std::int64_t*>(to));
  });
  return ncclSuccess;
}

}  // extern "C"
