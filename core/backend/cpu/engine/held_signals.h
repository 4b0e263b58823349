#pragma once

/// oneDNN and handlers of signals.

#include <csignal>

namespace fq::cpu {

/// Keeps handlers of signals from running on this thread while it lives; what arrives meanwhile is handled
/// then. oneDNN's products of floats (of AVX2 and later, 2.6) point the stack register at an array of their
/// own on the heap: what the system writes below it for a handler would overwrite whatever is there. Faults
/// of the thread's own are not held.
class HeldSignals {
 public:
  HeldSignals() noexcept {
    sigset_t held;
    sigfillset(&held);
    for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) sigdelset(&held, own);
    pthread_sigmask(SIG_BLOCK, &held, &before_);
  }
  ~HeldSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  HeldSignals(const HeldSignals&) = delete;  // puts back what it found
  HeldSignals& operator=(const HeldSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace fq::cpu
