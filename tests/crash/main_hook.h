#pragma once

/// When a library that is loaded before libc counts, in its one source: from the beginning of main to its
/// end.

#include "next.h"

namespace crash {

inline bool running = false;

using Main = int(int, char**, char**);
inline Main* program = nullptr;

inline int begin(int count, char** arguments, char** variables) {
  running = true;
  const int status = program(count, arguments, variables);
  running = false;
  return status;
}

}  // namespace crash

extern "C" int __libc_start_main(crash::Main* main, int count, char** arguments, void (*init)(),
                                 void (*fini)(), void (*loader)(), void* stack) {
  crash::program = main;
  return crash::next<decltype(__libc_start_main)>("__libc_start_main")(crash::begin, count, arguments, init,
                                                                       fini, loader, stack);
}
