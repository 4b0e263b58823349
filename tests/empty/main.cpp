/// Calls every function with empty inputs, made from the golden cases of it: it must answer or throw an
/// fq::Error; of an empty x the answer "y" has no elements and "grad_x" its shape. Arguments:
/// functions to restrict it to; before them `--device cuda`; or --list, which prints the functions that are
/// called. With EMPTY_TRACE set each call is printed before it runs. Exit status as that of `golden`.

#include <cstdlib>
#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "emptied.h"
#include "fakequant/core/error.h"
#include "own_functions.h"

namespace fq::empty {
namespace {

constexpr std::size_t kMost = 60;        // cases of a function
constexpr std::int64_t kLargest = 2000;  // elements of a case that is used

std::map<std::string, std::vector<golden::Case>> starts(const std::filesystem::path& folder) {
  std::map<std::string, std::vector<golden::Case>> out;
  const auto add = [&](golden::Case c) {
    std::int64_t elements = 0;
    for (const auto& [name, input] : c.inputs) elements += input.tensor.numel();
    if (elements <= kLargest) out[c.text("function")].push_back(std::move(c));
  };
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".h5")
      for (auto& c : golden::read_cases(entry.path().string())) add(std::move(c));
  for (auto& c : own_cases()) add(std::move(c));
  for (auto& [function, cases] : out) cases = unlike(cases, kMost);
  return out;
}

struct Counts {
  int computed = 0, rejected = 0;
};

/// Describes the fault of a result; empty if it is right.
std::string wrong(const golden::Case& c, const golden::Outputs& got) {
  const Tensor x = c.tensor("x");
  if (!x.defined() || x.numel() > 0) return "";
  const auto of = [&](const char* name) { return got.contains(name) ? got.at(name) : Tensor(); };
  if (const Tensor y = of("y"); y.defined() && y.numel() > 0)
    return fmt::format("y is {} for x {}", to_string(y.shape()), to_string(x.shape()));
  if (const Tensor dx = of("grad_x"); dx.defined() && dx.shape() != x.shape())
    return fmt::format("grad_x is {} for x {}", to_string(dx.shape()), to_string(x.shape()));
  return "";
}

std::string failure(const golden::Case& c, const golden::Function& function, Counts& counts) try {
  const auto line = wrong(c, function(c));
  ++counts.computed;
  return line;
} catch (const Error&) {
  ++counts.rejected;
  return "";
} catch (const std::exception& error) {
  return fmt::format("throws {}, which is no fq::Error", error.what());
}

int run(const std::set<std::string>& only, Device device) {
  golden::Functions functions = golden::all_functions();
  add_own(functions);
  const auto cases = starts(FAKEQUANT_SOURCE_DIR "/tests/golden");
  Counts counts;
  int failed = 0;
  for (const auto& name : only)
    if (!functions.contains(name)) throw ArgumentError(fmt::format("[empty] no function '{}'", name));
  for (const auto& [name, function] : functions) {
    if (!only.empty() && !only.contains(name)) continue;
    if (!cases.contains(name)) {
      fmt::print("empty: {} has no case to begin with\n", name);
      ++failed;
      continue;
    }
    for (const golden::Case& c : cases.at(name))
      for (const auto& [changed, what] : emptied(c)) {
        if (std::getenv("EMPTY_TRACE") != nullptr) fmt::print(stderr, "{} {}: {}\n", name, c.name, what);
        const auto line = failure(changed.on(device), function, counts);
        if (line.empty()) continue;
        fmt::print("empty: {} {}, {}: {}\n", name, c.name, what, line);
        ++failed;
      }
  }
  fmt::print("empty: {} answered, {} refused, {} wrong\n", counts.computed, counts.rejected, failed);
  return failed == 0 && counts.computed + counts.rejected > 0 ? 0 : 1;
}

void print_functions() {
  golden::Functions functions = golden::all_functions();
  add_own(functions);
  for (const auto& [name, function] : functions) fmt::print("{}\n", name);
  for (const auto& name : nested_calls()) fmt::print("{}\n", name);
}

}  // namespace
}  // namespace fq::empty

int main(int argc, char** argv) try {
  if (argc == 2 && std::string_view(argv[1]) == "--list") return fq::empty::print_functions(), 0;
  const bool elsewhere = argc > 2 && std::string_view(argv[1]) == "--device";
  const auto device = elsewhere ? fq::Device::parse(argv[2]) : fq::Device::cpu();
  if (device.is_cuda() && fq::cuda_device_count() == 0) {
    fmt::print("empty: skipped, there is no GPU\n");
    const char* required = std::getenv("FAKEQUANT_REQUIRE_CUDA");
    return required != nullptr && *required == '1' ? 1 : 77;
  }
  return fq::empty::run({argv + (elsewhere ? 3 : 1), argv + argc}, device);
} catch (const std::exception& error) {
  fmt::print(stderr, "empty: {}\n", error.what());
  return 2;
}
