#include "interpreter_lock.h"

#include <atomic>
#include <chrono>
#include <thread>

#include <cxxabi.h>
#include <pthread.h>
#include <unistd.h>

#include "bindings.h"

namespace fq::python {
namespace {

constexpr auto kPatience = std::chrono::seconds(10);  // a call stops after its current operator

// `ends` is set when the atexit handler runs. It is written after `ending_thread`, so a reader of both sees
// the thread.
std::atomic<bool> ends = false;
std::thread::id ending_thread;
std::atomic<int> computing = 0;      // threads without the lock
thread_local bool computes = false;  // the calling thread is one of them

// `computes` avoids counting a thread twice when calls nest.
void set_computing(bool on) noexcept {
  if (computes != on) computing += on ? 1 : -1;
  computes = on;
}

bool is_ending_thread() noexcept { return ends && ending_thread == std::this_thread::get_id(); }

bool is_finalizing() noexcept {
#if PY_VERSION_HEX >= 0x030d0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

/// Sleeps until the process exits.
[[noreturn]] void wait_for_end() noexcept {
  for (;;) pause();
}

/// Calls `take`, which acquires the lock. Does not return while another thread finalizes the interpreter.
template <class Take>
auto acquire(Take take) noexcept {
  if (!is_running() && !is_ending_thread()) wait_for_end();
  try {
    // pthread_exit unwinds by abi::__forced_unwind. Swallowing it would end the process, so the thread waits
    // instead.
    return take();
  } catch (abi::__forced_unwind&) {
    wait_for_end();
  }
}

/// Runs before finalization, while other threads can still acquire the lock.
void end_calls() {
  ending_thread = std::this_thread::get_id();
  ends = true;
  // Without releasing the lock, the other threads could never see `ends`.
  const nb::gil_scoped_release free;
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (computing > 0 && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

}  // namespace

bool is_running() noexcept { return Py_IsInitialized() != 0 && !is_finalizing(); }
bool must_end() noexcept { return ends && !is_ending_thread(); }

// No new call may start during the end: the interpreter would not exist when the call returns.
Unlocked::Unlocked() {
  if (must_end()) {
    PyErr_SetNone(PyExc_SystemExit);
    throw nb::python_error();
  }
  set_computing(true);
  state_ = PyEval_SaveThread();
}

Unlocked::~Unlocked() {
  acquire([&] { PyEval_RestoreThread(state_); });
  set_computing(false);
}

// A callback holds the lock, so its thread does not count as computing until the callback returns.
Locked::Locked() : state_(acquire([] { return PyGILState_Ensure(); })), computed_(computes) {
  set_computing(false);
}

Locked::~Locked() {
  set_computing(computed_);
  PyGILState_Release(state_);
}

void bind_interpreter_lock(nb::module_&) {
  // In a forked child only the forking thread exists.
  pthread_atfork(nullptr, nullptr, [] { computing = computes ? 1 : 0; });
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(&end_calls));
}

}  // namespace fq::python
