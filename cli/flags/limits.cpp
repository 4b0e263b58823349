#include "fakequant/cli/flags/limits.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include "fakequant/cli/system/standard_streams.h"
#include "fakequant/core/detail/threads.h"
#include "fakequant/core/error.h"

namespace fq::cli {
namespace {

constexpr rlim_t kLeastStack = 256 << 10, kLeastAddresses = 256 << 20;

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
  if (threads <= kMostThreads) return;
  fq::detail::set_threads(kMostThreads);
  complain(fmt::format(
      "warning: [fakequant] OMP_NUM_THREADS is {}: {} threads are used, or as many as --threads says",
      threads, kMostThreads));
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
