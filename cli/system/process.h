#pragma once

/// This process: signals, the end without memory, limits of memory and threads.

#include <atomic>
#include <string>

namespace fq::cli {

/// Makes SIGINT (Ctrl-C), SIGTERM and SIGHUP request a stop: see GracefulStop. The second SIGINT ends the
/// process at once. SIGHUP and SIGTERM stay ignored if they were ignored (nohup). Instead of SIGPIPE and
/// SIGXFSZ, the call that writes fails.
void catch_signals();

/// Set by SIGINT, and by SIGTERM and SIGHUP while a GracefulStop lives. Loops over batches stop after the
/// current batch.
[[nodiscard]] std::atomic<bool>& stop_requested();
/// Returns the signal that requested the stop; 0 before.
[[nodiscard]] int stop_signal() noexcept;
/// "Ctrl-C", "SIGTERM" or "SIGHUP".
[[nodiscard]] std::string stop_name();

/// While one lives, the code below it looks at `stop_requested` and has something to save or to put away.
/// Elsewhere SIGTERM and SIGHUP end the process as they always do: files are written whole or not at all.
class GracefulStop {
 public:
  GracefulStop() noexcept;
  ~GracefulStop();
  GracefulStop(const GracefulStop&) = delete;  // tied to its block
  GracefulStop& operator=(const GracefulStop&) = delete;
};

/// The message of a command that ran out of memory.
[[nodiscard]] const char* out_of_memory_message() noexcept;
/// Makes that message name --batch, for commands that have the flag.
void advise_smaller_batch() noexcept;

/// Prints that message without allocating memory.
void complain_of_memory() noexcept;

/// Makes an uncaught std::bad_alloc end the process with exit status 1 and that message instead of an abort.
/// Destructors of nlohmann::json can throw one.
void end_without_memory() noexcept;
/// Returns true if an allocation failed since then. A later failure can follow from it, because streams fail
/// silently without memory.
[[nodiscard]] bool ran_out_of_memory() noexcept;

/// Largest number of threads.
inline constexpr int kMostThreads = 1024;

/// Throws SystemError if stack or address space (ulimit -s, -v) are too small for oneDNN, which would crash.
/// Lowers the number of threads to kMostThreads, with a warning.
void check_limits();

/// Sets the number of threads. Warns if OpenMP gives fewer.
void use_threads(int count);

}  // namespace fq::cli
