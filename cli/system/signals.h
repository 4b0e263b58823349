#pragma once

/// Signals, and how a command stops because of one.

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

}  // namespace fq::cli
