#pragma once

/// open() and open64() of a library that is loaded before libc, in its one source.

#include <cstdarg>

#include <fcntl.h>

#include "next.h"

namespace crash {

/// The library's own action; `open()` is libc's.
template <class Open>
int opening(const char* path, int flags, Open&& open);

inline int call_open(const char* name, const char* path, int flags, std::va_list more) {
  auto* const real = next<int(const char*, int, ...)>(name);
  const int mode = (flags & O_CREAT) != 0 ? va_arg(more, int) : 0;
  return opening(path, flags, [&] { return real(path, flags, mode); });
}

}  // namespace crash

extern "C" {

int open(const char* path, int flags, ...) {
  std::va_list more;
  va_start(more, flags);
  const int file = crash::call_open("open", path, flags, more);
  va_end(more);
  return file;
}

int open64(const char* path, int flags, ...) {
  std::va_list more;
  va_start(more, flags);
  const int file = crash::call_open("open64", path, flags, more);
  va_end(more);
  return file;
}

}  // extern "C"
