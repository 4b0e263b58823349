#pragma once

/// What ranks ask of MPI. The functions lie in a module of their own that is linked with one
/// (module/module.cpp), and is loaded when several processes were started: one process neither needs an MPI
/// nor waits for its load. No type of MPI or of the standard library goes across.

#include <cstdint>

#include "fakequant/core/numerics/number_formats.h"

namespace fq::mpi {

using Group = std::uint64_t;    ///< the processes of a run, an MPI_Comm
using Request = std::uint64_t;  ///< what is on its way, an MPI_Request

enum class Reduce : int { i64_max, i64_sum, f32_sum, bf16_sum };
constexpr auto kSumOfBf16 = [](bfloat16 a, bfloat16 b) {
  return bfloat16(static_cast<float>(a) + static_cast<float>(b));
};

constexpr int kNameBytes = 256;  ///< of a machine, with a zero at the end

struct Functions {
  /// Begins MPI; false where somebody has.
  bool (*begin)();
  /// Unless somebody has.
  void (*end)();
  /// Ends all processes, where MPI has begun.
  void (*abort)(int status);
  /// "Open MPI v4.1.4, ..": into so many bytes.
  void (*version)(char* text, int bytes);
  /// Whether threads may make calls, one at a time.
  bool (*any_thread)();

  /// All processes anew, whose messages are theirs alone.
  Group (*group)(int* own, int* size);
  /// The names of their machines, in `kNameBytes` each. Waits.
  void (*names)(Group ranks, char* all);

  Request (*reduce)(Group ranks, void* values, int count, Reduce how);
  Request (*gather_sizes)(Group ranks, const std::int64_t* own, std::int64_t* all);
  Request (*gather)(Group ranks, const char* own, int bytes, char* all, const int* sizes, const int* begins);
  Request (*send)(Group ranks, const void* from, int bytes, int rank);
  Request (*receive)(Group ranks, void* to, int bytes, int rank);
  bool (*done)(Request* request);
  void (*give_up)(Request request);

  /// A message of that number, which has no bytes and waits for nobody.
  void (*tell)(Group ranks, int rank, int message);
  /// The next rank that told so; -1 for none.
  int (*heard)(Group ranks, int message);
};

/// Of which the module has one by this name, which is another where the functions are others.
constexpr const char* kFunctions = "fakequant_mpi_1";

/// Loads the module first. Throws BackendError where it or its MPI is not installed.
[[nodiscard]] const Functions& functions();

}  // namespace fq::mpi
