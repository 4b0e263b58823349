#pragma once

/// Handles Ctrl-C during long calls of the library.

#include <atomic>
#include <chrono>
#include <exception>

#include "fakequant/core/trace.h"
#include "graded.h"

namespace fq::python {

/// Interrupts of one call, on any thread. During the call a SIGINT sets `stop` if the handler of SIGINT is
/// Python's default, which raises KeyboardInterrupt on the main thread. A call on another thread raises
/// KeyboardInterrupt too, so that the main thread does not wait for it. Other handlers run, and their
/// exception ends a call of the main thread. The constructor and destructor require the interpreter's lock.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;  // registered by address
  Interrupts& operator=(const Interrupts&) = delete;

  /// Runs Python's signal handlers. Returns whether the call must end, because a handler raised an exception
  /// or for another reason; `rethrow` throws that exception. Acquires the interpreter's lock.
  bool due();
  /// Ends the call with an exception of Python code. Requires the interpreter's lock.
  void end_call(std::exception_ptr thrown);
  /// Throws the exception that ended the call, if there is one. Requires the interpreter's lock.
  void rethrow();

  std::atomic<bool> stop = false;

 private:
  std::exception_ptr thrown_;
};

/// Leaves the operator at which a call ends. It does not derive from std::exception, so that handlers of
/// errors do not catch it.
struct Interrupted {};

/// Checks for interrupts at each operator, every 200 ms, or at once if `stop` is set.
class InterruptWatch : public Recorder {
 public:
  explicit InterruptWatch(Interrupts& interrupts) : interrupts_(interrupts) {}
  void record_op(std::string_view op, const std::vector<Variable>& inputs, const Variable& output,
                 Attributes attributes) override;
  /// Checks for interrupts between operators. Throws Interrupted.
  void look();

 private:
  Interrupts& interrupts_;
  std::chrono::steady_clock::time_point next_ = {};
};

/// Returns the result of `f(watch)`, computed without the interpreter's lock. An interrupt ends `f` like an
/// exception, after which functions of the library leave a model unchanged.
template <class F>
auto interruptible(F f) {
  Interrupts interrupts;
  try {
    return unlocked([&] {
      InterruptWatch watch(interrupts);
      const RecordScope scope(watch);
      return f(watch);
    });
  } catch (const Interrupted&) {
    interrupts.rethrow();
    throw;
  }
}

}  // namespace fq::python
