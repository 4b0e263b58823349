#include "fakequant/cli/system/machine.h"

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/utsname.h>

#include "fakequant/core/backend/cpu/engine/exact.h"

namespace fq::cli {
namespace {

constexpr const char* kUsed[] = {"avx2",        "fma",         "f16c",     "avx512f",  "avx512bw",
                                 "avx512_bf16", "avx512_vnni", "avx_vnni", "amx_int8", "amx_bf16"};
/// Features of 64-bit ARM by their bit in AT_HWCAP: NEON for our kernels, and the features that oneDNN uses.
constexpr std::pair<const char*, unsigned> kArm[] = {{"asimd", 1}, {"asimddp", 20}, {"sve", 22}};

/// Returns the text after the colon in the first line "name : value" whose name begins with one of `names`.
std::string read_field(const char* path, const std::vector<std::string>& names) {
  std::ifstream file(path);
  // The file repeats the fields for every processor. The first one is enough.
  for (std::string line; std::getline(file, line);)
    for (const auto& name : names) {
      const auto colon = line.find(':');
      if (!line.starts_with(name) || colon == std::string::npos) continue;
      const auto begin = line.find_first_not_of(" \t", colon + 1);
      return begin == std::string::npos ? "" : line.substr(begin);
    }
  return {};
}

std::string architecture() {
  utsname names{};
  return uname(&names) == 0 ? names.machine : "";
}

}  // namespace

std::string processor_name() {
  // "model name" on x86, "Model" or "Hardware" on ARM boards.
  const std::string name = read_field("/proc/cpuinfo", {"model name", "Model", "Hardware"});
  return name.empty() ? architecture() : name;
}

std::vector<std::string> instruction_sets() {
  std::vector<std::string> out;
  if (architecture() == "aarch64") {
    for (const auto& [name, bit] : kArm)
      if (getauxval(AT_HWCAP) >> bit & 1) out.emplace_back(name);
    return out;
  }
  std::istringstream flags(read_field("/proc/cpuinfo", {"flags"}));
  std::set<std::string> supported;
  for (std::string flag; flags >> flag;) supported.insert(flag);
  for (const char* name : kUsed)
    if (supported.contains(name)) out.emplace_back(name);
  return out;
}

int processors() {
  cpu_set_t set;
  // Processors that this process may use: containers and taskset allow fewer than the machine has.
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

double load() {
  double mean = 0;
  return getloadavg(&mean, 1) == 1 ? mean : 0;
}

std::int64_t available_memory() {
  // The field is in KiB ("12345 kB").
  return std::strtoll(read_field("/proc/meminfo", {"MemAvailable"}).c_str(), nullptr, 10) * 1024;
}

std::string huge_pages() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;
  std::getline(file, line);
  // The file lists all modes with the present one in brackets: "always [madvise] never".
  const auto begin = line.find('['), end = line.find(']');
  return begin == std::string::npos || end == std::string::npos ? ""
                                                                : line.substr(begin + 1, end - begin - 1);
}

std::string version_line() {
  return fmt::format("fakequant {}, cpu, codes multiplied as {}", FAKEQUANT_VERSION,
                     cpu::name(cpu::best_exact_type()));
}

}  // namespace fq::cli
