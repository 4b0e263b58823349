#pragma once

/// When results are written past the caches.

#include <algorithm>
#include <cstdint>

#include <hwy/cache_control.h>
#include <unistd.h>

namespace fq::cpu {

/// A tensor of that many bytes does not fit the last-level cache, or what other work leaves of a large one:
/// whoever reads it next finds none of it there, and writing it past the caches saves reading the lines
/// first.
inline bool beyond_cache(std::int64_t bytes) {
#ifdef _SC_LEVEL3_CACHE_SIZE
  static const std::int64_t size = sysconf(_SC_LEVEL3_CACHE_SIZE);
#else
  static const std::int64_t size = 0;
#endif
  constexpr std::int64_t usual = std::int64_t{32} << 20, most = std::int64_t{64} << 20;
  return bytes > (size > 0 ? std::min(size, most) : usual);
}

/// Asks for memory that a loop from there on soon reads or writes: a store into what no cache holds waits for
/// it, and what a processor asks for by itself is too little where the last cache is far away.
inline void fetch_ahead(const void* at) {
  constexpr int bytes = 4096;
  __builtin_prefetch(static_cast<const char*>(at) + bytes);  // hwy's asks for an optimizing compiler
}
/// The same of `count` elements.
template <class T>
void fetch_ahead(const T* at, std::int64_t count) {
  constexpr std::int64_t line = 64 / sizeof(T);
  for (std::int64_t i = 0; i < count; i += line) fetch_ahead(at + i);
}

/// Makes writes past the caches of this thread visible to others.
inline void flush_writes() { hwy::FlushStream(); }

}  // namespace fq::cpu
