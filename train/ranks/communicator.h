#pragma once

/// Communicator: the processes that share the work of a run.
///
///     const auto ranks = started_ranks();  // one, unless mpiexec or Slurm started more
///     auto batches = std::make_shared<DataLoader>(data, share_of_rank({.batch_size = 16}, *ranks, 8));
///     Trainer(float_network, batches, {.update = {.accumulation = 8}, .distributed = {.ranks =
///     ranks}}).fit();
///
/// Ranks exchange integers and text. Integer sums do not depend on the order of addition, so a run has the
/// same bits for any number of processes.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fakequant/core/numerics/number_formats.h"

namespace fq {

class Tensor;

/// How gradients are summed over ranks: exactly, with the bits of a single process, or as floats of fewer
/// bytes.
enum class Reduction : unsigned char { exact, fp32, bf16 };

/// One of `size` processes. All processes must make the calls below in the same order; a call returns when
/// all have made it. Throws BackendError with the rank and its host if other processes exceed the time limit.
/// Use it from one thread at a time.
class Communicator {
 public:
  Communicator() = default;
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;  // held by shared_ptr
  Communicator& operator=(const Communicator&) = delete;

  /// Returns the number of this process, from 0.
  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;
  /// Returns whether a thread other than the first may make calls, one thread at a time.
  [[nodiscard]] virtual bool any_thread() const noexcept { return true; }
  /// Replaces each element by its largest value on any rank.
  virtual void max(std::span<std::int64_t> values) = 0;
  /// Replaces each element by its sum over all ranks. The sum must fit into 64 bits.
  virtual void sum(std::span<std::int64_t> values) = 0;
  /// Sums floats. The order of addition, and so the bits of the sum, depend on the number of ranks.
  virtual void sum(std::span<float> values) = 0;
  virtual void sum(std::span<bfloat16> values) = 0;
  /// Sums an i64 tensor on its device: with NCCL on GPUs if it is available, otherwise on the host.
  virtual void sum_where_it_lies(Tensor& values);
  /// Returns the texts of all ranks, in rank order.
  [[nodiscard]] virtual std::vector<std::string> gather(const std::string& text) = 0;
  /// Returns the number of bytes that this rank has sent so far.
  [[nodiscard]] virtual std::int64_t bytes() const noexcept = 0;
  /// Returns whether this rank must report that other ranks are missing: whether it is the first to call. For
  /// ranks that have failed. Takes half a second and waits for no other rank.
  [[nodiscard]] virtual bool speaks_for_all() { return true; }
};

/// Returns a communicator of this process alone.
[[nodiscard]] std::shared_ptr<Communicator> one_rank();

/// Returns whether the library was built with MPI.
[[nodiscard]] bool has_mpi() noexcept;
/// Loads MPI and returns its name, for example "Open MPI v4.1.4". Empty if the library was built without MPI.
/// Throws BackendError if MPI is not installed.
[[nodiscard]] std::string mpi_library();
/// Returns the name of this machine.
[[nodiscard]] std::string host_name();
/// Rank and number of processes from the launcher's environment variables: in the run, and on this machine.
struct Launched {
  int rank = 0, ranks = 1;
  int rank_here = 0, ranks_here = 1;
};
/// Reads the variables of mpiexec (Open MPI, MPICH, MVAPICH) or Slurm. Returns one process without a
/// launcher.
[[nodiscard]] Launched launched();
/// Returns the processes that mpiexec or Slurm started, connected by MPI. The first call loads and
/// initializes MPI, which is finalized at the end of the process. Returns `one_rank`, without MPI, for a
/// single process. Each call of the communicator waits at most `seconds`.
///
/// Throws ArgumentError if several processes were started and the library has no MPI, or an MPI that does not
/// belong to the launcher. Throws BackendError if MPI is not installed.
[[nodiscard]] std::shared_ptr<Communicator> started_ranks(double seconds = 600);

/// Ends all processes of the run at once with the exit status `status`, or only this process if it is alone.
/// For a rank that must end while others wait for it.
[[noreturn]] void abort_ranks(int status);

}  // namespace fq
