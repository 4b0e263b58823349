#pragma once

/// The interpreter's lock (GIL), safe while the interpreter finalizes.
///
/// Python calls `pthread_exit` on a thread that acquires the lock of a finalizing interpreter. Its unwinding
/// must not pass through C++. Such a thread sleeps until the process exits. Before finalization an `atexit`
/// handler stops the calls of other threads: they raise SystemExit.

#include "array.h"

namespace fq::python {

/// Releases the lock while the library computes. Throws SystemExit if another thread finalizes the
/// interpreter.
class Unlocked {
 public:
  Unlocked();
  ~Unlocked();
  Unlocked(const Unlocked&) = delete;  // acquires the lock once
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* state_;
};

/// Acquires the lock while the library computes.
class Locked {
 public:
  Locked();
  ~Locked();
  Locked(const Locked&) = delete;  // releases the lock once
  Locked& operator=(const Locked&) = delete;

 private:
  PyGILState_STATE state_;
  bool computed_;
};

/// Returns whether Python objects may be used: the interpreter is initialized and does not finalize.
[[nodiscard]] bool is_running() noexcept;
/// Returns whether another thread finalizes the interpreter, so that calls must stop. Requires the lock.
[[nodiscard]] bool must_end() noexcept;

}  // namespace fq::python
