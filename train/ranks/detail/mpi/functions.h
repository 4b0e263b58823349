#pragma once

/// MPI functions that ranks need. They are in a separate module, which is linked with MPI (module/module.cpp)
/// and loaded if several processes were started. A single process needs no MPI and does not wait for its
/// load. The interface uses no types of MPI or of the standard library.

#include <cstdint>

#include "fakequant/core/numerics/number_formats.h"

namespace fq::mpi {

using Group = std::uint64_t;    ///< the processes of a run, an MPI_Comm
using Request = std::uint64_t;  ///< a pending transfer, an MPI_Request

enum class Reduce : int { i64_max, i64_sum, f32_sum, bf16_sum };
constexpr auto kSumOfBf16 = [](bfloat16 a, bfloat16 b) {
  return bfloat16(static_cast<float>(a) + static_cast<float>(b));
};

constexpr int kNameBytes = 256;  ///< length of a host name, with its terminating zero

struct Functions {
  /// Initializes MPI. Returns false if MPI is already initialized.
  bool (*begin)();
  /// Finalizes MPI unless it is already finalized.
  void (*end)();
  /// Ends all processes if MPI is initialized.
  void (*abort)(int status);
  /// Writes a text like "Open MPI v4.1.4, ..", at most `bytes` bytes.
  void (*version)(char* text, int bytes);
  /// Returns whether threads other than the first may make calls, one at a time.
  bool (*any_thread)();

  /// Returns a new communicator of all processes, with separate messages.
  Group (*group)(int* own, int* size);
  /// Writes the host names of all ranks, `kNameBytes` bytes each. Waits for all ranks.
  void (*names)(Group ranks, char* all);

  Request (*reduce)(Group ranks, void* values, int count, Reduce how);
  Request (*gather_sizes)(Group ranks, const std::int64_t* own, std::int64_t* all);
  Request (*gather)(Group ranks, const char* own, int bytes, char* all, const int* sizes, const int* begins);
  Request (*send)(Group ranks, const void* from, int bytes, int rank);
  Request (*receive)(Group ranks, void* to, int bytes, int rank);
  bool (*done)(Request* request);
  void (*give_up)(Request request);

  /// Sends the number `message`, without content and without waiting.
  void (*tell)(Group ranks, int rank, int message);
  /// Returns the next rank that sent `message`; -1 for none.
  int (*heard)(Group ranks, int message);
};

/// Name of the function table in the module. It changes with the table.
constexpr const char* kFunctions = "fakequant_mpi_1";

/// Returns the function table. The first call loads the module. Throws BackendError if the module or its MPI
/// is not installed.
[[nodiscard]] const Functions& functions();

}  // namespace fq::mpi
