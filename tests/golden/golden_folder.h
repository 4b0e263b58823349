#pragma once

/// Where golden files are: FAKEQUANT_GOLDEN_DIR on a machine that has them elsewhere than where tests were built.

#include <cstdlib>
#include <string>

namespace fq::test {

inline std::string golden_folder() {
  const char* named = std::getenv("FAKEQUANT_GOLDEN_DIR");
  return named != nullptr && *named != '\0' ? named : FAKEQUANT_SOURCE_DIR "/tests/golden";
}

}  // namespace fq::test
