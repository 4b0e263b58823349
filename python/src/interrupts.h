#pragma once

/// Ctrl-C while the library computes: one mechanism for all calls that take long.

#include <atomic>
#include <chrono>
#include <exception>

#include "fakequant/core/trace.h"
#include "graded.h"

namespace fq::python {

/// The interrupts of one call, on any thread. While it lives a SIGINT sets `stop`, where Python's own handler
/// raises KeyboardInterrupt on the main thread: a call on another thread raises one too, so that nobody waits
/// for it. Other handlers are run, and end a call of the main thread by what they raise. It is made and
/// destroyed with the interpreter's lock.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;  // registered by address
  Interrupts& operator=(const Interrupts&) = delete;

  /// Lets Python run its handlers of signals. Whether one of them raised, or the call is to end otherwise: it
  /// keeps what is to be thrown. Takes the interpreter's lock.
  bool due();
  /// Ends the call by an exception that Python's code raised, with the interpreter's lock.
  void end_by(std::exception_ptr thrown);
  /// Throws what was kept, with the interpreter's lock.
  void rethrow();

  std::atomic<bool> stop = false;

 private:
  std::exception_ptr thrown_;
};

/// Comes out of the operator at which a call ends; no std::exception, so that nobody takes it for an error.
struct Interrupted {};

/// Looks for interrupts at the door of every operator, some times a second.
class InterruptWatch : public Recorder {
 public:
  explicit InterruptWatch(Interrupts& interrupts) : interrupts_(interrupts) {}
  void on_op(std::string_view op, const std::vector<Variable>& inputs, const Variable& output,
             Attributes attributes) override;
  /// The same between operators. Throws Interrupted.
  void look();

 private:
  Interrupts& interrupts_;
  std::chrono::steady_clock::time_point next_ = {};
};

/// A result that is computed without the interpreter's lock, and until an interrupt: `f(watch)` ends with it
/// as with any exception, by which functions of the library leave a model as it was.
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
