#include "fakequant/cli/system/signals.h"

#include <array>
#include <csignal>
#include <cstdlib>

namespace fq::cli {
namespace {

std::atomic<int> last_signal{0}, graceful{0};
constexpr std::array kHangUps{SIGTERM, SIGHUP};  // which nohup and its like ignore
std::array<bool, 2> ignored_at_start{};
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

/// Called before any library's constructor.
__attribute__((no_sanitize("address", "thread", "undefined"))) void note_ignored(int, char**, char**) {
  for (std::size_t i = 0; i < kHangUps.size(); ++i) {
    struct sigaction now {};
    ignored_at_start[i] = sigaction(kHangUps[i], nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
  }
}
__attribute__((section(".preinit_array"), used)) void (*const noting)(int, char**, char**) = note_ignored;

}  // namespace

void ignore_as_at_start() {
  for (std::size_t i = 0; i < kHangUps.size(); ++i)
    if (ignored_at_start[i]) std::signal(kHangUps[i], SIG_IGN);
}

void catch_signals() {
  std::signal(SIGINT, on_signal);
  for (const int number : kHangUps)
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
