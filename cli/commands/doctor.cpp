#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/flags/flag_groups.h"
#include "fakequant/cli/system/machine.h"
#include "fakequant/cli/system/programs.h"
#include "fakequant/cli/system/waiting.h"
#include "fakequant/core/backend/cpu/engine/exact.h"
#include "fakequant/core/backend/device_ranks.h"
#include "fakequant/core/detail/device_traits.h"
#include "fakequant/core/detail/threads.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/train/ranks/communicator.h"

namespace fq::cli {
namespace {

/// One property of the machine or the build, and advice to fix a problem.
struct MachineFinding {
  std::string name, found, advice;
};

const std::vector<std::string> kEnginePackages{"numpy", "h5py", "onnx", "onnxruntime"},
    kDataPackages{"numpy", "h5py", "pillow", "pyarrow", "tokenizers"};
constexpr std::int64_t kLittleMemory = std::int64_t{2} << 30;

// FAKEQUANT_PARTS is the list of optional parts of this build, separated by commas. Commas around the name
// prevent a match of a longer name.
bool has_part(const std::string& name) {
  return (std::string(",") + FAKEQUANT_PARTS + ",").find("," + name + ",") != std::string::npos;
}

MachineFinding part(const std::string& name, const std::string& library) {
  if (has_part(name)) return {name, "built with " + library, ""};
  return {name, "left out", fmt::format("install {} and build again", library)};
}

MachineFinding products() {
  const auto type = cpu::best_exact_type();
  std::string found = fmt::format("codes multiplied as {}, sums of the largest codes right", cpu::name(type));
  // Sums are exact with every type. s8 is the fastest.
  const bool is_narrow = type == cpu::ExactType::s8;
  return {"engine", std::move(found),
          is_narrow ? ""
                    : "oneDNN has no exact int8 products for this processor (on x86 they require "
                      "VNNI): the same bits, slower"};
}

std::string waiting() {
  const char* name = waiting_variable();
  return name == nullptr ? "of the system" : fmt::format("{}={}", name, std::getenv(name));
}

MachineFinding threads() {
  const int cores = processors();
  const double busy = load();
  std::string found = fmt::format("{} of {} processors, waiting {}, load {:.1f}", fq::detail::threads(),
                                  cores, waiting(), busy);
  std::string advice;
  if (!has_part("openmp"))
    advice = "built without OpenMP: configure without FAKEQUANT_OPENMP=OFF";
  else if (busy > cores)
    advice = "other programs compute here too: a run gets only its share";
  // Too many threads is the worst of these problems, so its advice replaces the others.
  if (cores > 0 && fq::detail::threads() > cores)
    advice = "more threads than processors wait for each other: use --threads " + std::to_string(cores);
  return {"threads", std::move(found), std::move(advice)};
}

MachineFinding memory() {
  const std::int64_t bytes = available_memory();
  return {"memory", fmt::format("{} available", megabytes(bytes)),
          bytes < kLittleMemory ? "little: use a small --batch, or set_checkpointing in C++" : ""};
}

MachineFinding pages() {
  const std::string found = huge_pages();
  return {"huge pages", found.empty() ? "not reported by the system" : found,
          found == "never" ? "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled, as root, makes "
                             "large steps faster"
                           : ""};
}

MachineFinding ranks() {
  if (!has_mpi()) return {"ranks", "left out", "install libopenmpi-dev and openmpi-bin and build again"};
  std::string found;
  try {
    found = mpi_library() + ": mpiexec runs train, qat and more on several processes";
  } catch (const BackendError& error) {
    return {"ranks", "built with MPI, which cannot be loaded", error.what()};
  }
  if (cuda_device_count() == 0) return {"ranks", found, ""};
  // Without NCCL, gradients of GPUs are summed through host memory.
  const std::string lacks = fq::detail::why_no_device_ranks();
  return {"ranks", found + (lacks.empty() ? ", GPUs sum by NCCL" : ", GPUs sum by way of the host"), lacks};
}

MachineFinding gpu() {
  // A driver may list a GPU that fails on its first use, so the first GPU computes something.
  const int count = cuda_device_count();
  if (!has_part("cuda")) return {"gpu", "left out", "build where nvcc is found, for NVIDIA GPUs"};
  if (count == 0) return {"gpu", "none that can be used", ""};
  try {
    const std::string codes = fq::detail::code_type(Device::cuda());
    return {"gpu", fmt::format("{}: {}, codes multiplied as {}", count, describe(Device::cuda()), codes),
            codes == "s8" ? "" : "steps are slower than with s8"};
  } catch (const Error& error) {
    return {"gpu", fmt::format("{}, of which the first cannot be used", count), error.what()};
  }
}

/// Returns one line for each package with its name and version; only the name if it is not installed.
std::string package_versions(const std::string& python, const std::vector<std::string>& names) {
  const TemporaryFolder folder;
  // Versions come from the metadata of the packages. Importing them would take seconds.
  const std::string script = fmt::format(
      "from importlib.metadata import PackageNotFoundError, version\n"
      "for name in '{}'.split():\n"
      "    try: print(name, version(name))\n"
      "    except PackageNotFoundError: print(name)\n",
      fmt::join(names, " "));
  write_file(folder.file("packages.py"), script);
  const ProgramLimits limits{folder.file("out"), folder.file("errors"), 60};
  const ProgramEnd end = run_program({python, folder.file("packages.py")}, limits);
  std::ostringstream text;
  text.exceptions(std::ios::badbit);  // throw instead of a truncated text without memory
  if (end.status == 0) text << std::ifstream(folder.file("out")).rdbuf();
  return text.str();
}

/// Returns the finding about Python packages. `use` is the command that needs them.
MachineFinding packages(const std::string& python, const char* name, const char* use,
                        const std::vector<std::string>& names) {
  std::vector<std::string> found, missing;
  try {
    std::istringstream lines(package_versions(python, names));
    for (std::string line; std::getline(lines, line);)
      (line.find(' ') == std::string::npos ? missing : found).push_back(line);
  } catch (const ArgumentError&) {
    return {name, python + " cannot be started", fmt::format("{} needs one: use --python", use)};
  }
  // The script prints a line for each package, so no line means that it failed.
  if (found.empty() && missing.empty())
    return {name, python + " ends with an error", fmt::format("{} needs one that works: use --python", use)};
  return {name,
          fmt::format("{}: {}", python,
                      found.empty() ? fmt::format("no package that {} needs", use)
                                    : fmt::format("{}", fmt::join(found, ", "))),
          missing.empty()
              ? ""
              : fmt::format("{} needs more: {} -m pip install {}", use, python, fmt::join(missing, " "))};
}

struct DoctorOptions {
  std::string python;
  GeneralOptions general;
};

FlagSet doctor_flags(DoctorOptions& options) {
  FlagSet set("doctor", "Prints the features of this machine and this build, and what to install for more.",
              "[flags]");
  set.group("Engine").value(
      options.python, "python", "PROGRAM",
      "a Python for verify and dataset from-.. (default: FAKEQUANT_PYTHON, or python3)");
  add_general_flags(set, options.general);
  return set;
}

void diagnose(const std::string& python, Output& output, nlohmann::ordered_json& result) {
  const std::vector<MachineFinding> findings = {
      {"version", version_line(), ""},
      {"processor", fmt::format("{}: {}", processor_name(), fmt::join(instruction_sets(), " ")), ""},
      products(),
      threads(),
      memory(),
      pages(),
      gpu(),
      part("onnx", "libonnx-dev"),
      ranks(),
      packages(python, "python", "verify", kEnginePackages),
      packages(python, "data", "dataset from-..", kDataPackages)};
  result["findings"] = nlohmann::ordered_json::array();
  for (const auto& [name, found, advice] : findings) {
    output.line(fmt::format("{:<11} {}", name, found));
    if (!advice.empty()) output.line(fmt::format("{:<11} -> {}", "", advice));
    result["findings"].push_back({{"name", name}, {"found", found}, {"advice", advice}});
  }
}

Plan plan_doctor(const DoctorOptions& options, PlannedFiles&) {
  Plan plan;
  plan.add("describe this machine and this build",
           [python = find_python(options.python)](Output& output, nlohmann::ordered_json& result) {
             diagnose(python, output, result);
           });
  return plan;
}

}  // namespace

Command doctor_command() {
  return {"doctor", "print the features of this machine and this build", typed(doctor_flags, plan_doctor)};
}

}  // namespace fq::cli
