#include "fakequant/core/detail/threads.h"

#include <algorithm>
#include <atomic>

#include <pthread.h>

#if defined(_OPENMP)
#include <omp.h>
#else
#include <dlfcn.h>
#endif

namespace fq::detail {
namespace {

#if defined(_OPENMP)

namespace openmp {
int max_threads() noexcept { return omp_get_max_threads(); }
void set_num_threads(int count) noexcept { omp_set_num_threads(count); }
bool inside_region() noexcept { return omp_in_parallel() != 0; }
void forbid_dynamic() noexcept {
  if (omp_get_dynamic() != 0) omp_set_dynamic(0);
}

int team_size(int wanted) noexcept {
  int size = 1;
#pragma omp parallel num_threads(std::min(wanted, omp_get_thread_limit()))
#pragma omp master
  size = omp_get_num_threads();
  return size;
}

/// Ends the threads that wait for the calling thread's next loop. Returns whether none remain.
bool end_pool() noexcept { return omp_pause_resource_all(omp_pause_soft) == 0; }
}  // namespace openmp

#else

// This build has no OpenMP of its own, but oneDNN may still use it. The functions are looked up by name.
/// The OpenMP runtime that oneDNN loads, if any.
namespace openmp {
template <class Function>
Function* function(const char* name) noexcept {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}
int number(int (*get)(), int otherwise) noexcept { return get == nullptr ? otherwise : get(); }

int max_threads() noexcept {
  static auto* const get = function<int()>("omp_get_max_threads");
  return number(get, 1);
}
void set_num_threads(int count) noexcept {
  static auto* const set = function<void(int)>("omp_set_num_threads");
  if (set != nullptr) set(count);
}
bool inside_region() noexcept {
  static auto* const get = function<int()>("omp_in_parallel");
  return number(get, 0) != 0;
}
void forbid_dynamic() noexcept {
  static auto* const set = function<void(int)>("omp_set_dynamic");
  if (set != nullptr) set(0);
}
int team_size(int wanted) noexcept {
  static auto* const limit = function<int()>("omp_get_thread_limit");
  static auto* const levels = function<int()>("omp_get_max_active_levels");
  return number(levels, 1) < 1 ? 1 : std::min(wanted, number(limit, wanted));
}
// 1 is omp_pause_soft.
bool end_pool() noexcept {
  static auto* const pause = function<int(int)>("omp_pause_resource_all");
  return pause != nullptr && pause(1) == 0;
}
}  // namespace openmp

#endif

/// Size of the largest team that a loop of this thread used.
thread_local int largest_team = 1;
std::atomic<bool> has_lost_pool = false;

/// Lowers the number of threads to the team size that OpenMP provides. Inside another team the number is 1,
/// because oneDNN uses no more threads there.
void lower_to_team() noexcept {
  const int wanted = openmp::max_threads();
  if (wanted <= 1) return;
  if (has_lost_pool || openmp::inside_region()) return openmp::set_num_threads(1);
  openmp::forbid_dynamic();
  if (wanted <= largest_team) return;
  // oneDNN waits at barriers for the number of threads that OpenMP reports. A smaller team would block it
  // forever.
  const int size = openmp::team_size(wanted);
  largest_team = std::max(largest_team, size);
  if (size < wanted) openmp::set_num_threads(size);
}

/// A forked child has only the forking thread, and its first loop would wait for the threads of the parent.
/// The threads are therefore ended before the fork; parent and child start new threads in their next loop.
/// Inside a loop this is not possible, and the child computes on one thread.
struct ForkHandlers {
  ForkHandlers() noexcept { pthread_atfork(&before, nullptr, &mark_child); }
  static void before() { pool_is_ended = openmp::end_pool(); }
  static void mark_child() {
    if (!pool_is_ended) has_lost_pool = true;
  }
  static thread_local bool pool_is_ended;
};
thread_local bool ForkHandlers::pool_is_ended = true;
const ForkHandlers fork_handlers;

}  // namespace

int requested_threads() noexcept { return openmp::max_threads(); }

int threads() noexcept {
  lower_to_team();
  return openmp::max_threads();
}

void set_threads(int count) noexcept {
  openmp::set_num_threads(std::max(count, 1));
  lower_to_team();
}

}  // namespace fq::detail
