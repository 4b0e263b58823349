#include "fakequant/cli/system/process.h"

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include "fakequant/cli/system/streams.h"
#include "fakequant/core/detail/threads.h"
#include "fakequant/core/error.h"

namespace fq::cli {
namespace {

// Written by the signal handler. Only lock-free atomics are safe there.
std::atomic<int> last_signal{0}, graceful{0};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

void handle_signal(int number) {
  // There is nothing to save. The default action shows the parent process the signal as the cause.
  if (number != SIGINT && graceful == 0) {
    std::signal(number, SIG_DFL);
    std::raise(number);
    return;
  }
  // The second Ctrl-C. _Exit is async-signal-safe and runs no destructors.
  if (stop_requested() && number == SIGINT) std::_Exit(128 + number);
  last_signal = number;
  stop_requested() = true;
}

}  // namespace

void catch_signals() {
  std::signal(SIGINT, handle_signal);
  for (const int number : {SIGTERM, SIGHUP})
    // nohup ignores SIGHUP before it starts the command.
    if (std::signal(number, handle_signal) == SIG_IGN) std::signal(number, SIG_IGN);
  for (const int number : {SIGPIPE, SIGXFSZ}) std::signal(number, SIG_IGN);
}

// A static of the function: constant-initialised, so the handler may use it at any time.
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

namespace {

std::terminate_handler previous_handler = nullptr;
std::atomic<bool> ran_out{false}, has_batch{false};

// The new-handler of std::set_new_handler. It notes that memory was exhausted, because later errors may hide
// it.
void run_out() {
  ran_out = true;
  throw std::bad_alloc();
}

[[noreturn]] void end_for_memory() {
  complain_of_memory();
  ::_exit(1);
}

// Called by std::terminate: exceptions that leave a noexcept function or a destructor.
[[noreturn]] void end_uncaught() {
  try {
    if (const auto error = std::current_exception()) std::rethrow_exception(error);
    if (ran_out) end_for_memory();  // g++ 12 gets here from an inlined destructor without an exception
  } catch (const std::bad_alloc&) {
    end_for_memory();
  } catch (...) {
  }
  // Other exceptions abort as usual.
  previous_handler();
  ::_exit(1);
}

}  // namespace

bool ran_out_of_memory() noexcept { return ran_out; }

const char* out_of_memory_message() noexcept {
  return has_batch ? "[fakequant] out of memory: use a smaller --batch" : "[fakequant] out of memory";
}

void advise_smaller_batch() noexcept { has_batch = true; }

// stderr is unbuffered and the message has no formatting that allocates.
void complain_of_memory() noexcept { std::fprintf(stderr, "fakequant: %s\n", out_of_memory_message()); }

void end_without_memory() noexcept {
  std::set_new_handler(run_out);
  previous_handler = std::set_terminate(end_uncaught);
}

namespace {

constexpr rlim_t kLeastStack = 256 << 10, kLeastAddresses = 256 << 20;

// Throws if a limit of the shell is so low that oneDNN would crash instead of reporting an error.
void check_limit(int resource, rlim_t least, const char* what, const char* flag) {
  rlimit limit{};
  if (getrlimit(__rlimit_resource_t(resource), &limit) != 0 || limit.rlim_cur >= least) return;
  throw SystemError(fmt::format("[fakequant] {} is limited to {} KiB: allow {} or more by ulimit {}", what,
                                limit.rlim_cur / 1024, least / 1024, flag));
}

}  // namespace

void check_limits() {
  check_limit(RLIMIT_STACK, kLeastStack, "the stack", "-s");
  check_limit(RLIMIT_AS, kLeastAddresses, "memory", "-v");
  const int threads = fq::detail::requested_threads();
  // A huge OMP_NUM_THREADS makes OpenMP abort the process when it cannot start its threads.
  if (threads <= kMostThreads) return;
  fq::detail::set_threads(kMostThreads);
  complain(fmt::format(
      "warning: [fakequant] OMP_NUM_THREADS is {}: {} threads are used, or the number of --threads", threads,
      kMostThreads));
}

void use_threads(int count) {
  fq::detail::set_threads(count);
  const int given = fq::detail::threads();
  if (given == count) return;
  complain(fmt::format(
      "warning: [fakequant] --threads {}: OpenMP gives {}. Check OMP_THREAD_LIMIT and OMP_MAX_ACTIVE_LEVELS",
      count, given));
}

}  // namespace fq::cli
