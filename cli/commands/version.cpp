#include "fakequant/cli/commands/version.h"

#include <fmt/format.h>

#include "fakequant/core/backend/cpu/engine/exact.h"

namespace fq::cli {

std::string version_line() {
  return fmt::format("fakequant {}, cpu, codes multiplied as {}", FAKEQUANT_VERSION,
                     cpu::name(cpu::best_exact_type()));
}

}  // namespace fq::cli
