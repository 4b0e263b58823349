/// What libFuzzer calls: the reader that FUZZ_READER names (scripts/fuzz).

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>

#include <unistd.h>

#include "reader.h"

extern "C" int LLVMFuzzerRunDriver(int* argc, char*** argv, int (*test)(const std::uint8_t*, std::size_t));

namespace {

int test_one(const std::uint8_t* data, std::size_t bytes) try {
  static const auto& reader = fq::fuzz::reader(std::getenv("FUZZ_READER"));
  static const std::string folder = [] {
    const auto made =
        std::filesystem::temp_directory_path() / ("fakequant_fuzz_" + std::to_string(::getpid()));
    std::filesystem::create_directories(made);
    return made.string();
  }();
  static std::uint64_t accepted = 0, runs = 0;
  accepted += fq::fuzz::accepts(reader, {reinterpret_cast<const char*>(data), bytes}, folder) ? 1 : 0;
  if (++runs % 10000 == 0)
    std::fprintf(stderr, "%s: %ju of %ju accepted\n", reader.name, std::uintmax_t(accepted),
                 std::uintmax_t(runs));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  std::abort();
}

}  // namespace

/// In place of the command's main (--wrap=main).
extern "C" int __wrap_main(int argc, char** argv) { return LLVMFuzzerRunDriver(&argc, &argv, test_one); }
