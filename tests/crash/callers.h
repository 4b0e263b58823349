#pragma once

/// The callers of a function: the stack, in the one source of a library that is loaded before libc.

#include <cstdint>
#include <cstring>
#include <iterator>
#include <utility>

#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <unistd.h>

namespace crash {

struct Library {
  const char* name;         ///< or of a function of it
  bool calls_back = false;  ///< functions of the program's

  [[nodiscard]] bool has(const Dl_info& function) const {
    return std::strstr(function.dli_fname, name) != nullptr ||
           (function.dli_sname != nullptr && std::strcmp(function.dli_sname, name) == 0);
  }
};

struct Callers {
  void* places[128] = {};
  int count = ::backtrace(places, 128);

  /// The library among these that called, or null: the innermost one. For libraries that call functions
  /// of the program (whose main is given), only the frames before these functions count.
  template <std::size_t N>
  const char* find_library(const Library (&libraries)[N], const void* main) const {
    Dl_info info{}, program{};
    ::dladdr(main, &program);
    bool within = false;
    for (int i = 0; i < count; ++i) {
      if (::dladdr(places[i], &info) == 0) continue;
      for (const Library& library : libraries)
        if (library.has(info) && !(library.calls_back && within)) return library.name;
      within |= info.dli_fbase == program.dli_fbase;
    }
    return nullptr;
  }

  void write(const char* path) const {
    const int file = ::open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    ::backtrace_symbols_fd(places, count, file);
    ::close(file);
  }

  /// Never 0.
  [[nodiscard]] std::uint64_t hash() const {
    std::uint64_t sum = 14695981039346656037u;
    for (int i = 0; i < count; ++i) sum = (sum ^ reinterpret_cast<std::uint64_t>(places[i])) * 1099511628211u;
    return sum | 1;
  }
};

/// Whether it is the first time that these are the callers.
inline bool are_new(const Callers& callers) {
  static std::uint64_t known[1 << 20];
  const std::uint64_t hash = callers.hash();
  std::size_t at = (hash >> 20) % std::size(known);
  while (known[at] != 0 && known[at] != hash) at = (at + 1) % std::size(known);
  return std::exchange(known[at], hash) == 0;
}

}  // namespace crash
