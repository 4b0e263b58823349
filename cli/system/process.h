#pragma once

/// State of this process: signals, exhausted memory, limits of memory and threads.

#include <atomic>
#include <string>

namespace fq::cli {

/// Installs signal handlers. SIGINT (Ctrl-C), SIGTERM and SIGHUP request a stop (GracefulStop). The second
/// SIGINT ends the process at once. Ignored SIGHUP and SIGTERM stay ignored (nohup). Instead of SIGPIPE and
/// SIGXFSZ, the system call that writes fails.
void catch_signals();

/// Set by SIGINT, and by SIGTERM and SIGHUP during the lifetime of a GracefulStop. Loops over batches stop
/// after the current batch.
[[nodiscard]] std::atomic<bool>& stop_requested();
/// Returns the signal that requested the stop; 0 before.
[[nodiscard]] int stop_signal() noexcept;
/// Returns "Ctrl-C", "SIGTERM" or "SIGHUP".
[[nodiscard]] std::string stop_name();

/// Marks a block that checks `stop_requested` and has results to save or files to remove. Outside of such
/// blocks SIGTERM and SIGHUP end the process as usual: every file is written completely or not at all.
class GracefulStop {
 public:
  GracefulStop() noexcept;
  ~GracefulStop();
  GracefulStop(const GracefulStop&) = delete;  // tied to its block
  GracefulStop& operator=(const GracefulStop&) = delete;
};

/// Returns the error message of exhausted memory.
[[nodiscard]] const char* out_of_memory_message() noexcept;
/// Makes this message mention --batch, for commands that have the flag.
void advise_smaller_batch() noexcept;

/// Prints this message without allocating memory.
void complain_of_memory() noexcept;

/// Makes an uncaught std::bad_alloc end the process with exit status 1 and this message instead of an abort.
/// Destructors of nlohmann::json can throw std::bad_alloc.
void end_without_memory() noexcept;
/// Returns true if an allocation failed since `end_without_memory`. A later error can be a consequence of it,
/// because streams fail silently without memory.
[[nodiscard]] bool ran_out_of_memory() noexcept;

/// Largest number of threads.
inline constexpr int kMostThreads = 1024;

/// Throws SystemError if stack or address space (ulimit -s, -v) are too small for oneDNN, which would crash.
/// Lowers the number of threads to kMostThreads, with a warning.
void check_limits();

/// Sets the number of threads. Warns if OpenMP gives fewer.
void use_threads(int count);

}  // namespace fq::cli
