/// fuzz_readers [RUNS] [READER] [FIRST]: reads the corpus of each reader, or of one, then RUNS changed
/// inputs, from number FIRST on. Every file of the corpus must be accepted, except those named refused*. Runs
/// with equal numbers are equal. A reader that accepts none of the changed inputs tests nothing: this is a
/// failure. A finding (input that is neither read nor rejected by an error) is stored in a folder that is
/// printed; a crash leaves its input in fakequant_fuzz_<READER> of the temporary folder.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <vector>

#include <fmt/format.h>

#include "changes.h"
#include "reader.h"

namespace fq::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kManyRuns = 500;  // some of them must be accepted

std::string read_bytes(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::vector<std::string> read_corpus(const Reader& reader, const std::string& folder) {
  std::vector<fs::path> files;
  for (const auto& entry :
       fs::directory_iterator(fs::path(FAKEQUANT_SOURCE_DIR "/tests/fuzz/corpus") / reader.name))
    files.push_back(entry.path());
  std::ranges::sort(files);
  std::vector<std::string> seeds;
  for (const auto& file : files) {
    seeds.push_back(read_bytes(file));
    const bool wanted = !file.filename().string().starts_with("refused");
    if (accepts(reader, seeds.back(), folder) != wanted)
      throw std::logic_error(fmt::format("{} is {}", file.string(), wanted ? "refused" : "accepted"));
  }
  if (seeds.empty()) throw std::logic_error("there is no corpus");
  return seeds;
}

/// Every second one as its reader says, if it does.
std::string changed(const Reader& reader, const std::vector<std::string>& seeds, std::uint64_t number) {
  if (reader.change == nullptr || number % 2 == 0) return mutated(seeds, number);
  return reader.change(seeds[number / 2 % seeds.size()], number);
}

/// Whether nothing was found.
bool try_reader(const Reader& reader, std::int64_t runs, std::int64_t first) {
  const fs::path folder = fs::temp_directory_path() / fmt::format("fakequant_fuzz_{}", reader.name);
  fs::create_directories(folder);
  std::int64_t accepted = 0, at = -1;
  try {
    const auto seeds = read_corpus(reader, folder.string());
    for (at = first; at < first + runs; ++at)
      accepted += accepts(reader, changed(reader, seeds, std::uint64_t(at)), folder.string()) ? 1 : 0;
  } catch (const std::exception& error) {
    fmt::print("fuzz: {}, {}: {}; see {}\n", reader.name, at < 0 ? "corpus" : fmt::format("{}", at),
               error.what(), folder.string());
    return false;
  }
  const bool enough = runs < kManyRuns || accepted > 0;
  fmt::print("fuzz: {}: {} runs from {}, {} accepted, {}\n", reader.name, runs, first, accepted,
             enough ? "nothing found" : "too few to have tested anything");
  fs::remove_all(folder);
  return enough;
}

}  // namespace
}  // namespace fq::fuzz

/// Replaces the command's main (--wrap=main).
extern "C" int __wrap_main(int argc, char** argv) {
  const std::int64_t runs = argc > 1 ? std::atoll(argv[1]) : 1000, first = argc > 3 ? std::atoll(argv[3]) : 0;
  bool found = false;
  for (const auto& reader : fq::fuzz::readers())
    if (argc < 3 || argv[2] == std::string(reader.name))
      found |= !fq::fuzz::try_reader(reader, reader.by_hdf5 && argc < 3 ? 0 : runs, first);
  return found ? 1 : 0;
}
