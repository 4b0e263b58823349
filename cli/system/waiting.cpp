#include "fakequant/cli/system/waiting.h"

#include <cstdlib>
#include <initializer_list>

#include <unistd.h>

namespace fq::cli {
namespace {

/// About 20 microseconds: longer than the pause between two loops of a step, much shorter than a time slice.
constexpr const char* kSpins = "5000";

}  // namespace

const char* waiting_variable() noexcept {
  for (const char* name : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"})
    if (std::getenv(name) != nullptr) return name;
  return nullptr;
}

void choose_waiting(char** arguments) noexcept {
  static char program[4096];  // the real name, for process lists; static, because the stack may be small
  if (waiting_variable() != nullptr || readlink("/proc/self/exe", program, sizeof program - 1) < 0) return;
  // If exec fails, the process continues with the default spin time.
  if (setenv("GOMP_SPINCOUNT", kSpins, 0) == 0) execv(program, arguments);
}

}  // namespace fq::cli
