#pragma once

/// When results are written past the caches.

#include <cstdint>

#include <hwy/cache_control.h>
#include <unistd.h>

namespace fq::cpu {

/// A tensor of that many bytes does not fit the last-level cache: whoever reads it next finds none of it
/// there, and writing it past the caches saves reading the lines first.
inline bool beyond_cache(std::int64_t bytes) {
#ifdef _SC_LEVEL3_CACHE_SIZE
  static const std::int64_t size = sysconf(_SC_LEVEL3_CACHE_SIZE);
#else
  static const std::int64_t size = 0;
#endif
  constexpr std::int64_t usual = std::int64_t{32} << 20;
  return bytes > (size > 0 ? size : usual);
}

/// Asks for memory that a loop from there on soon writes: a store into what no cache holds waits for it.
inline void fetch_ahead(const void* written) {
  constexpr int bytes = 4096;
  __builtin_prefetch(static_cast<const char*>(written) + bytes);  // hwy's asks for an optimizing compiler
}

/// Makes writes past the caches of this thread visible to others.
inline void flush_writes() { hwy::FlushStream(); }

}  // namespace fq::cpu
