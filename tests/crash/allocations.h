#pragma once

/// malloc() and its like of a library that is loaded before libc, in its one source: operator new and what
/// libc's own allocations come here too.

#include <cerrno>
#include <cstddef>

namespace crash {

/// Whether this call gets no memory: the library's own.
bool refuses();

inline bool refused() {
  const bool none = refuses();
  if (none) errno = ENOMEM;
  return none;
}

}  // namespace crash

extern "C" {

void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* old, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

void* malloc(size_t bytes) { return crash::refused() ? nullptr : __libc_malloc(bytes); }

void* calloc(size_t count, size_t bytes) { return crash::refused() ? nullptr : __libc_calloc(count, bytes); }

void* realloc(void* old, size_t bytes) {
  return bytes > 0 && crash::refused() ? nullptr : __libc_realloc(old, bytes);
}

void* memalign(size_t alignment, size_t bytes) {
  return crash::refused() ? nullptr : __libc_memalign(alignment, bytes);
}

void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }

int posix_memalign(void** found, size_t alignment, size_t bytes) {
  void* const memory = memalign(alignment, bytes);
  if (memory == nullptr) return ENOMEM;
  *found = memory;
  return 0;
}

}  // extern "C"
