// fakequant_gpu_bench [--rounds N] [--work] [--device cuda:N] [ROW..]: one JSON object a row on standard
// output, after one of the machine. Exit status 1 when a row failed or differs from the CPU. --rounds 0:
// nothing is compared or timed, each row's own work is called three times, for a profiler. --work: prints the
// launches and bytes of each kernel in one captured call, which does not run.

#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fakequant/bench/gpu/rows.h"
#include "fakequant/bench/gpu/timer.h"
#include "fakequant/core/backend/capture.h"
#include "fakequant/core/backend/cuda/runtime/runtime.h"
#include "fakequant/core/device.h"
#include "fakequant/core/error.h"

namespace {

using namespace fq;
using nlohmann::ordered_json;

struct Options {
  int rounds = 15;
  bool work = false;
  Device device = Device::cuda();
  std::vector<std::string> names;
};

int parse_rounds(const std::string& text) {
  int rounds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rounds);
  if (error != std::errc{} || end != text.data() + text.size() || rounds < 0)
    throw ArgumentError("--rounds " + text + ": use 0 or more");
  return rounds;
}

Options read(int count, char** arguments) {
  Options out;
  for (int i = 1; i < count; ++i) {
    const std::string word = arguments[i];
    if (!word.starts_with("--"))
      out.names.push_back(word);
    else if (word == "--rounds" && i + 1 < count)
      out.rounds = parse_rounds(arguments[++i]);
    else if (word == "--work")
      out.work = true;
    else if (word == "--device" && i + 1 < count)
      out.device = Device::parse(arguments[++i]);
    else
      throw ArgumentError(word + ": the flags are --rounds N, --work and --device cuda:N");
  }
  return out;
}

void print(const ordered_json& line) {
  std::puts(line.dump().c_str());
  std::fflush(stdout);
}

ordered_json machine(Device device) {
  const auto setup = bench::device_setup(device);
  return {{"device", describe(device)},
          {"driver", setup.driver},
          {"runtime", setup.runtime},
          {"clock_mhz", setup.clock_mhz},
          {"memory_clock_mhz", setup.memory_clock_mhz},
          {"cache_bytes", bench::cache_bytes(device)}};
}

ordered_json counted(const bench::GpuRow& row, const Options& options, std::int64_t elements) {
  const auto work = row.make(options.device, elements);
  work.prepare ? work.prepare() : work.ours();
  detail::Capture capture(options.device);
  cuda::count_work(true);
  capture.add(work.ours);
  cuda::count_work(false);
  ordered_json kernels = ordered_json::array();
  for (const auto& each : cuda::counted_work())
    kernels.push_back({{"kernel", each.kernel},
                       {"launches", each.launches},
                       {"products", each.products},
                       {"copies", each.copies},
                       {"read_bytes", each.read},
                       {"written_bytes", each.written}});
  return {{"row", row.name}, {"kernels", kernels}};
}

ordered_json measured(const bench::GpuRow& row, const Options& options, std::int64_t elements) {
  const auto work = row.make(options.device, elements);
  if (options.rounds == 0) {
    for (int i = 0; i < 3; ++i) work.ours();
    return {{"row", row.name}};
  }
  if (const std::string wrong = work.check(); !wrong.empty()) return {{"row", row.name}, {"error", wrong}};
  const auto pair = bench::time_pair(options.device, work.ours, work.theirs, options.rounds);
  ordered_json out{{"row", row.name},
                   {"ratio", pair.ours / pair.theirs},
                   {"goal", row.goal},
                   {"ours_s", pair.ours},
                   {"theirs_s", pair.theirs}};
  if (work.bytes > 0) {
    out["gigabytes_per_second"] = work.bytes / pair.ours * 1e-9;
    out["copy_share"] = pair.theirs / pair.ours;
  }
  const auto before = cuda::counts();
  work.ours();
  const auto after = cuda::counts();
  out["launches"] = after.launches - before.launches;
  out["graphs"] = after.graphs - before.graphs;
  out["waits"] = after.waits - before.waits;
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
  for (auto& row : bench::gpu_product_rows()) rows.push_back(std::move(row));
  for (auto& row : bench::gpu_step_rows()) rows.push_back(std::move(row));
  constexpr std::int64_t times_the_cache = 4, whole = 1024;
  const std::int64_t bytes = times_the_cache * bench::cache_bytes(options.device);
  const std::int64_t elements = bytes / 4 / whole * whole;
  int failed = 0;
  for (const auto& row : rows) {
    if (!wanted(options, row.name)) continue;
    ordered_json line;
    try {
      line = options.work ? counted(row, options, elements) : measured(row, options, elements);
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
  } catch (const ArgumentError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
