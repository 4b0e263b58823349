#pragma once

#include <string>

namespace fq::cli {

/// "fakequant 0.1.0, cpu, codes multiplied as s8".
[[nodiscard]] std::string version_line();

}  // namespace fq::cli
