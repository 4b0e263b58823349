#include "fakequant/cli/system/signals.h"

#include <csignal>
#include <cstdlib>

namespace fq::cli {
namespace {

std::atomic<int> last_signal{0}, graceful{0};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

void on_signal(int number) {
  if (number != SIGINT && graceful == 0) {
    std::signal(number, SIG_DFL);
    std::raise(number);
    return;
  }
  if (stop_requested() && number == SIGINT) std::_Exit(128 + number);
  last_signal = number;
  stop_requested() = true;
}

}  // namespace

void catch_signals() {
  std::signal(SIGINT, on_signal);
  for (const int number : {SIGTERM, SIGHUP})
    if (std::signal(number, on_signal) == SIG_IGN) std::signal(number, SIG_IGN);
  for (const int number : {SIGPIPE, SIGXFSZ}) std::signal(number, SIG_IGN);
}

std::atomic<bool>& stop_requested() {
  static std::atomic<bool> stop{false};
  return stop;
}

int stop_signal() noexcept { return last_signal; }

std::string stop_name() {
  switch (stop_signal()) {
    case SIGTERM:
      return "SIGTERM";
    case SIGHUP:
      return "SIGHUP";
    default:
      return "Ctrl-C";
  }
}

GracefulStop::GracefulStop() noexcept { ++graceful; }
GracefulStop::~GracefulStop() { --graceful; }

}  // namespace fq::cli
