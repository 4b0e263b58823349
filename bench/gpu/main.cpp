// fakequant_gpu_bench [--rounds N] [--device cuda:N] [ROW..]: one JSON object a row on standard output, after
// one of the machine. Exit status 1 when a row failed or differs from the CPU.

#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "fakequant/bench/gpu/rows.h"
#include "fakequant/bench/gpu/timer.h"
#include "fakequant/core/allocator.h"
#include "fakequant/core/error.h"

namespace {

using namespace fq;
using nlohmann::ordered_json;

struct Options {
  int rounds = 15;
  Device device = Device::cuda();
  std::vector<std::string> names;
};

Options read(int count, char** arguments) {
  Options out;
  for (int i = 1; i < count; ++i) {
    const std::string word = arguments[i];
    if (word == "--rounds" && i + 1 < count)
      out.rounds = std::stoi(arguments[++i]);
    else if (word == "--device" && i + 1 < count)
      out.device = Device::parse(arguments[++i]);
    else
      out.names.push_back(word);
  }
  return out;
}

void print(const ordered_json& line) {
  std::puts(line.dump().c_str());
  std::fflush(stdout);
}

ordered_json machine(Device device) {
  const auto setup = bench::setup_of(device);
  return {{"device", describe(device)},
          {"driver", setup.driver},
          {"runtime", setup.runtime},
          {"clock_mhz", setup.clock_mhz},
          {"memory_clock_mhz", setup.memory_clock_mhz},
          {"cache_bytes", bench::cache_bytes(device)}};
}

ordered_json measured(const bench::GpuRow& row, const Options& options, std::int64_t elements) {
  const auto work = row.make(options.device, elements);
  if (const std::string wrong = work.check(); !wrong.empty()) return {{"row", row.name}, {"error", wrong}};
  const auto pair = bench::time_pair(options.device, work.ours, work.theirs, options.rounds);
  ordered_json out{{"row", row.name},
                   {"ratio", pair.ours / pair.theirs},
                   {"goal", row.goal},
                   {"ours_s", pair.ours},
                   {"theirs_s", pair.theirs}};
  if (work.bytes > 0) out["gigabytes_per_second"] = work.bytes / pair.ours * 1e-9;
  return out;
}

bool wanted(const Options& options, const std::string& name) {
  if (options.names.empty()) return true;
  for (const auto& part : options.names)
    if (name.find(part) != std::string::npos) return true;
  return false;
}

int run(const Options& options) {
  print(machine(options.device));
  auto rows = bench::gpu_kernel_rows();
  for (auto& row : bench::gpu_step_rows()) rows.push_back(std::move(row));
  const std::int64_t elements = 4 * bench::cache_bytes(options.device) / 4 / 1024 * 1024;
  int failed = 0;
  for (const auto& row : rows) {
    if (!wanted(options, row.name)) continue;
    ordered_json line;
    try {
      line = measured(row, options, elements);
    } catch (const Error& error) {
      line = {{"row", row.name}, {"error", error.what()}};
    }
    failed += line.contains("error") ? 1 : 0;
    print(line);
    release_cached_memory();
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    return run(read(count, arguments));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
