#pragma once

/// Communicator: the processes that share out a run.
///
///     const auto ranks = started_ranks();  // one, unless mpiexec or Slurm started more
///     auto batches = std::make_shared<DataLoader>(data, share_of_rank({.batch_size = 16}, *ranks, 8));
///     Trainer(float_network, batches, {.update = {.accumulation = 8}, .distributed = {.ranks =
///     ranks}}).fit();
///
/// What goes between ranks are integers and text: sums of them do not depend on who adds what, so that a run
/// has the bits of one process however many there are.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fakequant/core/numerics/number_formats.h"

namespace fq {

class Tensor;

/// How gradients are summed over ranks: exactly, with the bits of one process, or as floats of fewer bytes.
enum class Reduction : unsigned char { exact, fp32, bf16 };

/// One of `size` processes. Each call below is made by all of them in the same order, and returns when all
/// have made it. Throws BackendError, naming the rank and its host, when the others do not come within the
/// time that they were given. For one thread at a time.
class Communicator {
 public:
  Communicator() = default;
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;  // held by shared_ptr
  Communicator& operator=(const Communicator&) = delete;

  /// From 0.
  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;
  /// Whether another thread than that which began may make calls, while no other does.
  [[nodiscard]] virtual bool any_thread() const noexcept { return true; }
  /// Each element becomes the largest that a rank has there.
  virtual void max(std::span<std::int64_t> values) = 0;
  /// Each element becomes the sum of those of all ranks, which has to fit.
  virtual void sum(std::span<std::int64_t> values) = 0;
  /// The same of floats, in an order that the number of ranks decides: the bits of a sum depend on it.
  virtual void sum(std::span<float> values) = 0;
  virtual void sum(std::span<bfloat16> values) = 0;
  /// `sum` of an i64 tensor: on GPUs by NCCL where there is one, else by way of the host.
  virtual void sum_where_it_lies(Tensor& values);
  /// The texts of all ranks, in their order.
  [[nodiscard]] virtual std::vector<std::string> gather(const std::string& text) = 0;
  /// Bytes that this rank has given to the others so far.
  [[nodiscard]] virtual std::int64_t bytes() const noexcept = 0;
  /// For ranks that have failed while others do not come: whether this one is the first to ask, and so tells
  /// of it. Takes half a second, and waits for none.
  [[nodiscard]] virtual bool speaks_for_all() { return true; }
};

/// A process on its own.
[[nodiscard]] std::shared_ptr<Communicator> one_rank();

/// Whether the library was built with MPI.
[[nodiscard]] bool has_mpi() noexcept;
/// "Open MPI v4.1.4", which this loads; empty where the library was built without one. Throws BackendError
/// where it is not installed.
[[nodiscard]] std::string mpi_library();
/// The name of this machine.
[[nodiscard]] std::string host_name();
/// What a launcher says, in this process's environment: this process among those that it started, and among
/// those of them on this machine.
struct Launched {
  int rank = 0, ranks = 1;
  int rank_here = 0, ranks_here = 1;
};
/// Of mpiexec (Open MPI, MPICH, MVAPICH) or Slurm; one process without them.
[[nodiscard]] Launched launched();
/// The processes that mpiexec or Slurm started, by MPI, which is loaded and begun by the first call and ended
/// with the process; `one_rank`, without MPI, where there is but one. A call of theirs waits `seconds` at
/// most.
///
/// Throws ArgumentError where several were started and the library has no MPI, or one whose launcher it was
/// not, BackendError where MPI is not installed.
[[nodiscard]] std::shared_ptr<Communicator> started_ranks(double seconds = 600);

/// Ends all processes of the run at once with that exit status: for a rank that cannot go on while others
/// wait for it. Ends this one where there are no others.
[[noreturn]] void abort_ranks(int status);

}  // namespace fq
