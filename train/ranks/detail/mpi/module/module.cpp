#include <algorithm>
#include <cstdio>
#include <cstring>

#include "fakequant/train/ranks/detail/mpi/functions.h"
#include "fakequant/train/ranks/detail/mpi/module/mpi_header.h"

namespace fq::mpi {
namespace {

// MPI libraries have handles of different types: an int in MPICH, a pointer in Open MPI. The interface has
// them as 64-bit numbers.
template <class T>
std::uint64_t word(T handle) {
  static_assert(sizeof handle <= sizeof(std::uint64_t));
  std::uint64_t out = 0;
  std::memcpy(&out, &handle, sizeof handle);
  return out;
}

template <class T>
T handle(std::uint64_t word) {
  T out;
  std::memcpy(&out, &word, sizeof out);
  return out;
}

MPI_Comm comm(Group ranks) { return handle<MPI_Comm>(ranks); }

// Returns the request of a nonblocking call, so that the caller can wait with a time limit.
template <class F>
Request begun(F&& begin) {
  MPI_Request request = MPI_REQUEST_NULL;
  begin(&request);
  return word(request);
}

bool begin() {
  int before = 0, provided = 0;
  MPI_Initialized(&before);
  // Serialized: gradient sums call MPI from another thread, one at a time.
  if (before == 0) MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
  return before == 0;
}

void end() {
  int ended = 0;
  MPI_Finalized(&ended);
  if (ended == 0) MPI_Finalize();
}

void abort(int status) {
  int before = 0, ended = 0;
  MPI_Initialized(&before);
  MPI_Finalized(&ended);
  // MPI_Abort before MPI_Init or after MPI_Finalize is an error itself.
  if (before != 0 && ended == 0) MPI_Abort(MPI_COMM_WORLD, status);
}

void version(char* text, int bytes) {
  char name[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(name, &length);
  std::snprintf(text, static_cast<std::size_t>(bytes), "%s", name);
}

bool any_thread() {
  int threads = MPI_THREAD_SINGLE;
  MPI_Query_thread(&threads);
  return threads >= MPI_THREAD_SERIALIZED;
}

Group group(int* own, int* size) {
  MPI_Comm ranks = MPI_COMM_NULL;
  // A communicator of our own: messages of other libraries cannot be received by mistake.
  MPI_Comm_dup(MPI_COMM_WORLD, &ranks);
  MPI_Comm_rank(ranks, own);
  MPI_Comm_size(ranks, size);
  return word(ranks);
}

void names(Group ranks, char* all) {
  char name[MPI_MAX_PROCESSOR_NAME] = "", own[kNameBytes] = "";
  int length = 0;
  MPI_Get_processor_name(name, &length);
  std::snprintf(own, sizeof own, "%s", name);
  MPI_Allgather(own, kNameBytes, MPI_CHAR, all, kNameBytes, MPI_CHAR, comm(ranks));
}

// MPI has no bf16 type. The operation reads the 16-bit words as bf16.
void add_bf16(void* from, void* to, int* count, MPI_Datatype*) {
  auto* sums = static_cast<bfloat16*>(to);
  std::transform(sums, sums + *count, static_cast<const bfloat16*>(from), sums, kSumOfBf16);
}

MPI_Op sum_of_bf16() {
  static const MPI_Op made = [] {
    MPI_Op op = MPI_OP_NULL;
    MPI_Op_create(add_bf16, 1, &op);
    return op;
  }();
  return made;
}

Request reduce(Group ranks, void* values, int count, Reduce how) {
  const bool of_bf16 = how == Reduce::bf16_sum;
  const MPI_Datatype type = of_bf16 ? MPI_UINT16_T : how == Reduce::f32_sum ? MPI_FLOAT : MPI_INT64_T;
  const MPI_Op operation = of_bf16 ? sum_of_bf16() : how == Reduce::i64_max ? MPI_MAX : MPI_SUM;
  return begun([&](MPI_Request* request) {
    // Nonblocking, so that the caller can wait with a time limit.
    MPI_Iallreduce(MPI_IN_PLACE, values, count, type, operation, comm(ranks), request);
  });
}

Request gather_sizes(Group ranks, const std::int64_t* own, std::int64_t* all) {
  return begun([&](MPI_Request* request) {
    MPI_Iallgather(own, 1, MPI_INT64_T, all, 1, MPI_INT64_T, comm(ranks), request);
  });
}

Request gather(Group ranks, const char* own, int bytes, char* all, const int* sizes, const int* begins) {
  return begun([&](MPI_Request* request) {
    MPI_Iallgatherv(own, bytes, MPI_CHAR, all, sizes, begins, MPI_CHAR, comm(ranks), request);
  });
}

Request send(Group ranks, const void* from, int bytes, int rank) {
  return begun(
      [&](MPI_Request* request) { MPI_Isend(from, bytes, MPI_BYTE, rank, 0, comm(ranks), request); });
}

Request receive(Group ranks, void* to, int bytes, int rank) {
  return begun([&](MPI_Request* request) { MPI_Irecv(to, bytes, MPI_BYTE, rank, 0, comm(ranks), request); });
}

bool done(Request* request) {
  auto own = handle<MPI_Request>(*request);
  int out = 0;
  MPI_Test(&own, &out, MPI_STATUS_IGNORE);
  *request = word(own);
  return out != 0;
}

void give_up(Request request) {
  auto own = handle<MPI_Request>(request);
  if (own == MPI_REQUEST_NULL) return;
  MPI_Cancel(&own);
  MPI_Request_free(&own);
}

void tell(Group ranks, int rank, int message) {
  MPI_Request request;
  MPI_Isend(nullptr, 0, MPI_CHAR, rank, message, comm(ranks), &request);
  // The message has no content, so that nothing has to stay alive until it is sent.
  MPI_Request_free(&request);
}

// Receives only a message that a probe has found, so that the call never blocks.
int heard(Group ranks, int message) {
  int there = 0;
  MPI_Status status;
  MPI_Iprobe(MPI_ANY_SOURCE, message, comm(ranks), &there, &status);
  if (there == 0) return -1;
  MPI_Recv(nullptr, 0, MPI_CHAR, status.MPI_SOURCE, message, comm(ranks), MPI_STATUS_IGNORE);
  return status.MPI_SOURCE;
}

}  // namespace
}  // namespace fq::mpi

extern "C" __attribute__((visibility("default"))) const fq::mpi::Functions fakequant_mpi_1{
    .begin = fq::mpi::begin,
    .end = fq::mpi::end,
    .abort = fq::mpi::abort,
    .version = fq::mpi::version,
    .any_thread = fq::mpi::any_thread,
    .group = fq::mpi::group,
    .names = fq::mpi::names,
    .reduce = fq::mpi::reduce,
    .gather_sizes = fq::mpi::gather_sizes,
    .gather = fq::mpi::gather,
    .send = fq::mpi::send,
    .receive = fq::mpi::receive,
    .done = fq::mpi::done,
    .give_up = fq::mpi::give_up,
    .tell = fq::mpi::tell,
    .heard = fq::mpi::heard,
};
