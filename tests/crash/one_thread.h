#pragma once

/// Threads of a process that is forked: they run in turns on the first one, and change places where one
/// waits, so that a copy has them all. Of a library that is loaded before libc, in its one source.

#include <cstdlib>
#include <iterator>

#include <pthread.h>
#include <ucontext.h>

namespace crash {

struct Turn {
  ucontext_t place;
  void* (*work)(void*) = nullptr;
  void* with = nullptr;
  bool lives = false;
};

inline Turn turns[16];  // the first is the process's own
inline std::size_t turn = 0;

inline void change_place() {
  std::size_t next = turn;
  do {
    next = (next + 1) % std::size(turns);
  } while (next != 0 && !turns[next].lives);
  if (next == turn) return;
  const std::size_t last = turn;
  turn = next;
  ::swapcontext(&turns[last].place, &turns[next].place);
}

inline void take_turns() {
  turns[turn].work(turns[turn].with);
  turns[turn].lives = false;
  change_place();
}

inline std::size_t unused_turn() {
  std::size_t found = 1;
  while (found < std::size(turns) && turns[found].lives) ++found;
  return found;
}

}  // namespace crash

extern "C" {

int pthread_create(pthread_t* thread, const pthread_attr_t*, void* (*work)(void*), void* with) {
  constexpr std::size_t bytes = 1 << 20;
  const std::size_t found = crash::unused_turn();
  if (found == std::size(crash::turns)) return EAGAIN;
  crash::Turn& made = crash::turns[found];
  if (made.place.uc_stack.ss_sp == nullptr) made.place.uc_stack.ss_sp = __libc_malloc(bytes);
  void* const stack = made.place.uc_stack.ss_sp;
  ::getcontext(&made.place);
  made.place.uc_stack = {stack, 0, bytes};
  made.work = work;
  made.with = with;
  made.lives = true;
  ::makecontext(&made.place, crash::take_turns, 0);
  *thread = found;
  return 0;
}

int pthread_join(pthread_t thread, void**) {
  while (crash::turns[thread].lives) crash::change_place();
  return 0;
}

int pthread_cond_wait(pthread_cond_t*, pthread_mutex_t*) {
  crash::change_place();
  return 0;
}

// A mutex remembers its owner by a number that a copy of the process has not.
int pthread_mutex_lock(pthread_mutex_t*) { return 0; }
int pthread_mutex_trylock(pthread_mutex_t*) { return 0; }
int pthread_mutex_unlock(pthread_mutex_t*) { return 0; }

}  // extern "C"
