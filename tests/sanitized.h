#pragma once

#include <fstream>

#include <unistd.h>

namespace fq::test {

/// The addresses that this process holds, in bytes.
inline double addresses_held() {
  double pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

/// Whether the address or the thread sanitizer is in this process: they hold terabytes from the start.
inline bool sanitized() { return addresses_held() > 1e12; }

}  // namespace fq::test
