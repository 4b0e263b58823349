#pragma once

/// The function of libc that one of ours stands before.

#include <dlfcn.h>

namespace crash {

template <class F>
F* next(const char* name) {
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace crash
