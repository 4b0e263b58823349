/// Entry points of libFuzzer for the reader named by FUZZ_READER (scripts/fuzz). Ends with status 1 if none
/// of kManyRuns inputs after the corpus was accepted: the run then tested nothing.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iterator>
#include <string>

#include <unistd.h>

#include "reader.h"

extern "C" int LLVMFuzzerRunDriver(int* argc, char*** argv, int (*test)(const std::uint8_t*, std::size_t));
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t bytes, std::size_t most);

namespace {

constexpr std::uint64_t kManyRuns = 500;  // some of them must be accepted

/// Numbers of inputs after the corpus. libFuzzer runs an empty input and the corpus first.
struct Counts {
  std::uint64_t corpus = 1, runs = 0, accepted = 0;
} counts;

const fq::fuzz::Reader& chosen_reader() {
  static const auto& reader = fq::fuzz::reader(std::getenv("FUZZ_READER"));
  return reader;
}

int test_one(const std::uint8_t* data, std::size_t bytes) try {
  static const std::string folder = [] {
    const auto made =
        std::filesystem::temp_directory_path() / ("fakequant_fuzz_" + std::to_string(::getpid()));
    std::filesystem::create_directories(made);
    return made.string();
  }();
  const bool accepted =
      fq::fuzz::accepts(chosen_reader(), {reinterpret_cast<const char*>(data), bytes}, folder);
  if (++counts.runs > counts.corpus && accepted) ++counts.accepted;
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  std::abort();
}

void tell_counts() {
  const std::uint64_t changed = counts.runs - std::min(counts.runs, counts.corpus);
  std::fprintf(stderr, "%s: %ju of %ju changed ones accepted\n", chosen_reader().name,
               std::uintmax_t(counts.accepted), std::uintmax_t(changed));
  if (changed < kManyRuns || counts.accepted > 0) return;
  std::fprintf(stderr, "too few to have tested anything\n");
  std::_Exit(1);
}

}  // namespace

/// Half of the changes are the reader's own, where it has some; half of those are of a file of the corpus as
/// it is, since what libFuzzer keeps is refused for the most part.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t bytes, std::size_t most,
                                               unsigned seed) {
  static const auto seeds = fq::fuzz::seeds(chosen_reader());
  const auto change = chosen_reader().change;
  if (change == nullptr || seed % 2 == 0) return LLVMFuzzerMutate(data, bytes, most);
  const std::string start = seed % 4 == 1 ? seeds[seed / 4 % seeds.size()]
                                          : std::string(reinterpret_cast<const char*>(data), bytes);
  const std::string changed = change(start, seed / 4);
  if (changed.size() > most || changed == start) return LLVMFuzzerMutate(data, bytes, most);
  return changed.copy(reinterpret_cast<char*>(data), most);
}

/// Replaces the command's main (--wrap=main).
extern "C" int __wrap_main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i)
    if (std::filesystem::is_directory(argv[i]))
      counts.corpus += std::uint64_t(std::distance(std::filesystem::directory_iterator(argv[i]), {}));
  std::atexit(tell_counts);
  return LLVMFuzzerRunDriver(&argc, &argv, test_one);
}
