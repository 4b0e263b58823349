/// Compares the library with every case of every golden file (next to this source, or in the
/// folder FAKEQUANT_GOLDEN_DIR): results, and rejected input. Arguments:
/// functions to restrict it to; before them `--device cuda`, which puts all inputs there; or --list, which
/// prints the functions' names. Exit status 77 without the device, 1 with FAKEQUANT_REQUIRE_CUDA=1.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "compare.h"
#include "fakequant/core/error.h"
#include "functions.h"
#include "golden_folder.h"
#include "refusals.h"

namespace fq::golden {
namespace {

constexpr double kWidest = 1e-4;  // of the largest number of an answer: sums in f32 are nearer than that

struct Score {
  int agree = 0, cases = 0, degenerate_agree = 0, degenerate = 0;
};

/// The input that the first differing element comes from, where a case has one of the same size.
std::string describe_input(const Case& c, const std::string& output, const std::string& line) {
  const Tensor x = c.tensor("x").defined() ? c.tensor("x") : c.tensor("codes");
  if (line[0] != '[' || !x.defined() || bit_width(x.dtype()) < 8) return "";
  const auto found = c.outputs.find(output);
  const auto i = std::strtoll(line.c_str() + 1, nullptr, 10);
  if (found->second.tensor.numel() != x.numel() || !is_floating(x.dtype())) return "";
  return fmt::format(", input {:.9g}", x.to(DType::f64).to_vector<double>()[static_cast<std::size_t>(i)]);
}

/// Describes a wrong rejection; empty if it names the mistake that the reference names.
std::string wrong_refusal(const Case& c, const std::string& ours) {
  const std::string theirs = c.text("error_message", c.text("error"));
  const auto words = expected_refusal(c);
  if (!words)
    return fmt::format("is refused with '{}', which tests/golden/refusals.cpp does not know: {}", theirs,
                       ours);
  if (ours.find(*words) == std::string::npos)
    return fmt::format("must be refused with '{}' ({}), throws {}", *words, theirs, ours);
  return "";
}

/// Describes the fault of a case; empty if there is none.
std::string disagreement(const Case& c, const Function& function) {
  Outputs got;
  try {
    got = function(c);
    for (auto& [name, output] : got) output = output.to(Device::cpu());  // a GPU refuses no sooner
  } catch (const Error& error) {
    return c.refused() ? wrong_refusal(c, error.what()) : fmt::format("throws {}", error.what());
  }
  if (c.refused()) return fmt::format("must be refused ({})", c.text("error_message", c.text("error")));
  if (c.outputs.empty()) return "has no answer of the reference";
  for (const auto& [name, expected] : c.outputs) {
    if (c.degenerate() && is_accident(c.text("function"), name)) continue;
    const std::string rule = expected.compare.empty() ? c.text("compare", "bits") : expected.compare;
    const double widest = c.text("source").starts_with("printed") ? 1.0 : kWidest;
    if (const auto line = difference(expected, got.contains(name) ? got.at(name) : Tensor(), rule, widest))
      return fmt::format("{} {}{}", name, *line, describe_input(c, name, *line));
  }
  return "";
}

void run(const Case& c, const Functions& functions, const std::string& file, Score& score) {
  const auto function = functions.find(c.text("function"));
  const std::string wrong =
      function == functions.end() ? "unknown function" : disagreement(c, function->second);
  (c.degenerate() ? score.degenerate : score.cases) += 1;
  if (wrong.empty()) (c.degenerate() ? score.degenerate_agree : score.agree) += 1;
  if (!wrong.empty())
    fmt::print("{}{}:{} {}: {}\n", c.degenerate() ? "(degenerate) " : "", file, c.name, c.text("function"),
               wrong);
}

std::vector<std::filesystem::path> list_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> out;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".h5") out.push_back(entry.path());
  std::sort(out.begin(), out.end());
  return out;
}

int report(const std::map<std::string, Score>& scores) {
  Score total;
  bool all = !scores.empty();
  for (const auto& [name, score] : scores) {
    fmt::print("{:<44} {:>5} / {}", name, score.agree, score.cases);
    if (score.degenerate > 0) fmt::print("   degenerate {} / {}", score.degenerate_agree, score.degenerate);
    fmt::print("\n");
    const int cases = score.cases + score.degenerate;
    total.agree += score.agree + score.degenerate_agree;
    total.cases += cases;
    all = all && cases > 0;
  }
  fmt::print("golden: {} / {} agree\n", total.agree, total.cases);
  return all && total.agree == total.cases ? 0 : 1;
}

int compare_all(const std::filesystem::path& folder, const std::set<std::string>& only, Device device) {
  const Functions functions = all_functions();
  for (const auto& name : only)
    if (!functions.contains(name)) throw ArgumentError(fmt::format("[golden] no function '{}'", name));
  std::map<std::string, Score> scores;
  for (const auto& name : only) scores[name];
  for (const auto& file : list_files(folder)) {
    const auto cases = read_cases(file.string());
    if (cases.empty()) throw FileError(file.string(), "", fmt::format("{} has no cases", file.string()));
    for (const Case& c : cases)
      if (const std::string name = c.text("function"); only.empty() || only.contains(name))
        run(c.on(device), functions, file.filename().string(), scores[name]);
  }
  return report(scores);
}

}  // namespace
}  // namespace fq::golden

int main(int argc, char** argv) try {
  if (argc == 2 && std::string_view(argv[1]) == "--list") {
    for (const auto& [name, function] : fq::golden::all_functions()) fmt::print("{}\n", name);
    return 0;
  }
  const bool elsewhere = argc > 2 && std::string_view(argv[1]) == "--device";
  const auto device = elsewhere ? fq::Device::parse(argv[2]) : fq::Device::cpu();
  if (device.is_cuda() && fq::cuda_device_count() == 0) {
    fmt::print("golden: skipped, there is no GPU\n");
    const char* required = std::getenv("FAKEQUANT_REQUIRE_CUDA");
    return required != nullptr && *required == '1' ? 1 : 77;
  }
  return fq::golden::compare_all(fq::test::golden_folder(), {argv + (elsewhere ? 3 : 1), argv + argc},
                                 device);
} catch (const std::exception& error) {
  fmt::print(stderr, "golden: {}\n", error.what());
  return 2;
}
