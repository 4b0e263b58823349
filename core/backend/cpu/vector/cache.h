#pragma once

/// Writes that bypass the caches, and prefetching.

#include <algorithm>
#include <cstdint>

#include <hwy/cache_control.h>
#include <unistd.h>

namespace fq::cpu {

/// Returns whether a tensor of this size exceeds the last-level cache, or the share of a large cache that
/// other work leaves. The next reader then finds no part of it in the cache. Writes that bypass the caches
/// avoid reading its cache lines first.
inline bool beyond_cache(std::int64_t bytes) {
#ifdef _SC_LEVEL3_CACHE_SIZE
  static const std::int64_t size = sysconf(_SC_LEVEL3_CACHE_SIZE);
#else
  static const std::int64_t size = 0;
#endif
  constexpr std::int64_t usual = std::int64_t{32} << 20, most = std::int64_t{64} << 20;
  return bytes > (size > 0 ? std::min(size, most) : usual);
}

/// Prefetches memory that a loop will soon read or write. A store to an uncached line waits for the line, and
/// hardware prefetching is not enough if the last-level cache is far away.
inline void fetch_ahead(const void* at) {
  constexpr int bytes = 4096;
  __builtin_prefetch(static_cast<const char*>(at) + bytes);  // Highway's version needs compiler optimization
}
/// Prefetches for `count` elements.
template <class T>
void fetch_ahead(const T* at, std::int64_t count) {
  constexpr std::int64_t line = 64 / sizeof(T);
  for (std::int64_t i = 0; i < count; i += line) fetch_ahead(at + i);
}

/// Makes writes of this thread that bypass the caches visible to other threads.
inline void flush_writes() { hwy::FlushStream(); }

}  // namespace fq::cpu
