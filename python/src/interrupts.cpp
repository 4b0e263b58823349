#include "interrupts.h"

#include <array>
#include <csignal>

#include "bindings.h"

namespace fq::python {
namespace {

constexpr std::size_t kCalls = 64;  // open calls; only Python's main thread ends further ones
constexpr auto kPause = std::chrono::milliseconds(200);

// Slots of the open calls. A signal handler may only use lock-free atomics: no mutex and no allocation.
std::array<std::atomic<std::atomic<bool>*>, kCalls> calls;
static_assert(std::atomic<std::atomic<bool>*>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);
int open_calls = 0;  // protected by the interpreter's lock
struct sigaction before;

/// Runs Python's handler first, so that Python has noted the signal before a call sees `stop`.
void interrupt_handler(int signal, siginfo_t* info, void* place) {
  if ((before.sa_flags & SA_SIGINFO) != 0)
    before.sa_sigaction(signal, info, place);
  else
    before.sa_handler(signal);
  for (const auto& call : calls)
    if (auto* stop = call.load()) *stop = true;
}

bool is_ours(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == &interrupt_handler;
}

/// Installs interrupt_handler before Python's handler, while calls are open. Does not change SIGINT if it is
/// ignored or ends the process.
void install_handler() {
  struct sigaction now {};
  if (sigaction(SIGINT, nullptr, &now) != 0 || is_ours(now)) return;
  if ((now.sa_flags & SA_SIGINFO) == 0 && (now.sa_handler == SIG_IGN || now.sa_handler == SIG_DFL)) return;
  before = now;
  now.sa_flags |= SA_SIGINFO;
  now.sa_sigaction = &interrupt_handler;
  sigaction(SIGINT, &now, nullptr);
}

void restore_handler() {
  struct sigaction now {};
  if (sigaction(SIGINT, nullptr, &now) == 0 && is_ours(now)) sigaction(SIGINT, &before, nullptr);
}

// A program with a handler of its own decides what Ctrl-C does.
bool python_raises() {
  const nb::object signal = nb::module_::import_("signal");
  return signal.attr("getsignal")(SIGINT).is(signal.attr("default_int_handler"));
}

}  // namespace

Interrupts::Interrupts() {
  ++open_calls;
  if (!python_raises()) return;
  install_handler();
  for (auto& call : calls) {
    std::atomic<bool>* none = nullptr;
    // Uses a free slot. Without a free slot, only Python's main thread can end the call, by `due`.
    if (call.compare_exchange_strong(none, &stop)) return;
  }
}

Interrupts::~Interrupts() {
  for (auto& call : calls) {
    std::atomic<bool>* own = &stop;
    if (call.compare_exchange_strong(own, nullptr)) break;
  }
  if (--open_calls == 0) restore_handler();
}

bool Interrupts::due() {
  const Locked lock;
  if (thrown_) return true;
  if (must_end()) {
    PyErr_SetNone(PyExc_SystemExit);
    end_call(std::make_exception_ptr(nb::python_error()));
    return true;
  }
  // Cleared here: a handler that raises nothing lets the call continue.
  const bool signalled = stop.exchange(false);
  // Runs Python's handlers, on the main thread only. On other threads it returns 0, and the signal is
  // reported by `signalled`.
  if (PyErr_CheckSignals() == 0) {
    if (!signalled || !python_raises()) return false;
    PyErr_SetNone(PyExc_KeyboardInterrupt);
  }
  end_call(std::make_exception_ptr(nb::python_error()));
  return true;
}

void Interrupts::end_call(std::exception_ptr thrown) {
  // Loops of the library check only this flag.
  thrown_ = std::move(thrown);
  stop = true;
}

void Interrupts::rethrow() {
  if (thrown_) std::rethrow_exception(thrown_);
}

void InterruptWatch::record_op(std::string_view, const std::vector<Variable>&, const Variable&, Attributes) {
  look();
}

void InterruptWatch::look() {
  const auto now = std::chrono::steady_clock::now();
  // Acquiring the interpreter's lock at every operator would be slow. The flag is a plain read.
  if (now < next_ && !interrupts_.stop) return;
  next_ = now + kPause;
  if (interrupts_.due()) throw Interrupted();
}

void bind_interrupts(nb::module_& m) {
  nb::class_<Interrupts>(
      m, "Interrupts", "Interrupts of a long call of Python code, on any thread. Create it before the work.")
      .def(nb::init<>())
      .def(
          "check",
          [](Interrupts& self) {
            if (self.due()) self.rethrow();
          },
          "Raises KeyboardInterrupt if there was one.");
}

}  // namespace fq::python
