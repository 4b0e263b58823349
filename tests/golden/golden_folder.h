#pragma once

/// The folder of golden files: FAKEQUANT_GOLDEN_DIR, or the folder in the sources.

#include <cstdlib>
#include <string>

namespace fq::test {

inline std::string golden_folder() {
  const char* named = std::getenv("FAKEQUANT_GOLDEN_DIR");
  return named != nullptr && *named != '\0' ? named : FAKEQUANT_SOURCE_DIR "/tests/golden";
}

}  // namespace fq::test
