#pragma once

/// This process: signals, the end without memory, limits of memory and threads.

#include <atomic>
#include <string>

namespace fq::cli {

/// From now on SIGINT (Ctrl-C), SIGTERM and SIGHUP ask for a stop: see GracefulStop. The second SIGINT ends
/// the process at once. SIGHUP and SIGTERM stay ignored where they were (nohup). What would raise SIGPIPE or
/// SIGXFSZ fails in the call that writes.
void catch_signals();

/// Set by SIGINT, and by SIGTERM and SIGHUP while a GracefulStop lives: whoever works in batches stops after
/// the current one.
[[nodiscard]] std::atomic<bool>& stop_requested();
/// The signal that asked for it; 0 before.
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
/// Says that the command has --batch, which the message then names.
void advise_smaller_batch() noexcept;

/// That line, by what needs no memory.
void complain_of_memory() noexcept;

/// From now on a std::bad_alloc that nobody can catch, as one out of a destructor (nlohmann::json's take
/// memory), ends the process with exit status 1 and that line in place of an abort.
void end_without_memory() noexcept;
/// Whether memory was asked for since then that was not given: what fails may fail for that, as streams end
/// where it does and say nothing.
[[nodiscard]] bool ran_out_of_memory() noexcept;

/// Most threads to compute on.
inline constexpr int kMostThreads = 1024;

/// Throws SystemError where stack or address space (ulimit -s, -v) are less than oneDNN can work with: it
/// does not say so itself, it crashes. Lowers the number of threads to kMostThreads, with a warning.
void check_limits();

/// Sets the number of threads to compute on. Warns where OpenMP gives fewer.
void use_threads(int count);

}  // namespace fq::cli
