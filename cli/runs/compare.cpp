#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/flags/flag_groups.h"
#include "fakequant/cli/flags/output_kind.h"
#include "fakequant/cli/initial_weights.h"
#include "fakequant/cli/runs/run_folder.h"
#include "fakequant/cli/system/programs.h"
#include "fakequant/cli/tables/output.h"
#include "fakequant/core/detail/threads.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/export/onnx/exporter.h"
#include "fakequant/layers/modules/detail/module_scopes.h"
#include "fakequant/network/network.h"
#include "fakequant/report/detail/runs/run_summary.h"

namespace fq::cli {
namespace {

struct Latency {
  double milliseconds = 0;  ///< of one sample, the median of many runs
  std::string engine;       ///< "ONNX Runtime 1.19.2", or "fakequant"
};

// Runs of one measurement, and seconds that it takes between these bounds.
constexpr int kLeastTimed = 20, kMostTimed = 2000;
constexpr double kSecondsTimed = 0.5;
constexpr double kSecondsOfEngine = 60;

// Returns nothing if ONNX Runtime is missing or cannot run the network. The caller then measures this
// library.
std::optional<Latency> time_onnx_runtime(const Network& network, const std::string& python, int threads) try {
  const TemporaryFolder folder;
  save_onnx(folder.file("net.onnx"), network.to_onnx());
  const std::vector<std::string> arguments{folder.file("net.onnx"), std::to_string(kLeastTimed),
                                           std::to_string(kMostTimed), std::to_string(kSecondsTimed),
                                           std::to_string(threads)};
  const ProgramEnd end =
      run_program(module_words("compare", python, "fakequant.engines.onnx_session", arguments),
                  {folder.file("out"), folder.file("errors"), kSecondsOfEngine});
  std::ifstream result(folder.file("out"));
  Latency found;
  // The module prints the median in milliseconds and the name of the engine.
  if (end.status != 0 || !(result >> found.milliseconds >> std::ws)) return std::nullopt;
  std::getline(result, found.engine);
  return found;
} catch (const Error&) {  // without Python, or for a network that cannot be exported
  return std::nullopt;
}

std::optional<Latency> time_fakequant(const Network& network, Device device) try {
  const NoGrad no_grad;
  const fq::detail::EvaluationMode evaluating(network.module());
  network.module().to(device);
  const Tensor x = Tensor::zeros(network.input_shape()).to(device);
  // The copy to the host waits for a GPU, so that its work is measured too.
  const auto run_network = [&] { (void)(network.module())(Variable(x)).tensor().to(Device::cpu()); };
  run_network();  // the first call computes codes of weights
  std::vector<double> times;
  for (const Stopwatch all; std::ssize(times) < kLeastTimed ||
                            (all.seconds() < kSecondsTimed && std::ssize(times) < kMostTimed);) {
    const Stopwatch one;
    run_network();
    times.push_back(1000 * one.seconds());
  }
  std::ranges::sort(times);
  // The median ignores interruptions by other programs.
  return Latency{times[times.size() / 2], "fakequant"};
} catch (const Error&) {
  return std::nullopt;
}

/// Measures the time of one sample of zeros in the network of a checkpoint. On the CPU, ONNX Runtime runs the
/// network if Python has it and the network can be exported. Otherwise this library evaluates it. Afterwards
/// this thread computes on --threads, or one. Returns nothing for a network that cannot read zeros. Throws as
/// load_network.
std::optional<Latency> measure_latency(const std::string& checkpoint, const std::string& python,
                                       const GeneralOptions& options) {
  const int threads = options.threads ? fq::detail::threads() : 1;
  // One thread by default, so that latencies of different machines can be compared.
  fq::detail::set_threads(threads);
  const Network network = load_network(checkpoint);
  const Device device = chosen_device(options, "compare");
  auto found = device.is_cuda() ? std::nullopt : time_onnx_runtime(network, python, threads);
  return found ? found : time_fakequant(network, device);
}

namespace fs = std::filesystem;
using fq::detail::RunSummary;
using nlohmann::ordered_json;

struct CompareOptions {
  std::vector<std::string> runs;
  std::string html, python;
  bool latency = false;
  GeneralOptions general;
};

RunSummary read_run(const std::string& path) {
  std::error_code none;
  if (!fs::is_directory(path, none))
    throw FileError(
        path, "",
        fmt::format("[compare] {} is no run directory: use folders that train or qat wrote (-o RUN/)", path));
  const RunFolder folder{path.ends_with('/') ? path : path + "/"};
  if (!fs::exists(folder.config(), none))
    throw FileError(
        path, "",
        fmt::format("[compare] {} is no run directory, it has no config.json: use folders that train "
                    "or qat wrote (-o RUN/)",
                    path));
  const auto config = read_run_config(folder);
  // The path ends with a slash: its parent is the folder as the user named it.
  return summarize_run(fs::path(folder.path).parent_path().string(), config,
                       fq::detail::RunRecord::load(folder.metrics()));
}

/// Measures the latency of the network of a run, if the run has one.
void add_latency(RunSummary& run, const std::string& path, const CompareOptions& options) {
  std::error_code none;
  const std::string checkpoint = read_checkpoint_path(path);
  if (!fs::is_regular_file(checkpoint, none)) return;
  auto latency = measure_latency(checkpoint, find_python(options.python), options.general);
  if (!latency) return;
  run.latency_ms = latency->milliseconds;
  run.engine = std::move(latency->engine);
}

template <class T>
std::string shown(const std::optional<T>& value, const char* form) {
  return value ? fmt::format(fmt::runtime(form), *value) : std::string("-");
}

std::string run_line(const RunSummary& run, std::size_t width, const std::vector<std::string>& flags) {
  std::string out = fmt::format(
      "{:<{}}  {:<12}  {:>8}{}  {:>7}  {:>5}  {:>11}  {:>8}", run.name, width, run.format,
      shown(run.accuracy, "{:.2f} %"), run.validated || !run.accuracy ? " " : "*", shown(run.loss, "{:.4f}"),
      shown(run.bits, "{:.3g}"), shown(run.bytes, "{}"), shown(run.ms_per_step, "{:.3g}"));
  if (!run.engine.empty()) out += fmt::format("  {:>10.3g} {}", *run.latency_ms, run.engine);
  if (run.state != "done") out += "  " + run.state;
  for (const auto& flag : flags)
    if (const auto text = flag_text(run, flag); !text.empty()) out += fmt::format("  --{} {}", flag, text);
  return out;
}

// Missing numbers are null in JSON, so that every run has the same keys.
template <class T>
ordered_json or_null(const std::optional<T>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

ordered_json run_json(const RunSummary& run) {
  return {{"run", run.name},
          {"command", run.command},
          {"model", run.model},
          {"format", run.format},
          {"state", run.state},
          {"validated", run.validated},
          {"accuracy", or_null(run.accuracy)},
          {"loss", or_null(run.loss)},
          {"bits", or_null(run.bits)},
          {"weight_bytes", or_null(run.bytes)},
          {"ms_per_step", or_null(run.ms_per_step)},
          {"seconds", or_null(run.seconds)},
          {"ms_per_sample", or_null(run.latency_ms)},
          {"engine", run.engine.empty() ? ordered_json(nullptr) : ordered_json(run.engine)},
          {"flags", run.given}};
}

FlagSet compare_flags(CompareOptions& options) {
  FlagSet set("compare", "Prints run directories as one table.", "RUN.. [flags]");
  set.group("Runs")
      .argument(options.runs, "runs", "RUN ..", "run directories, as train and qat write them")
      .output(options.html, "html", "FILE", "write a page with a table and a figure", kind::page)
      .toggle(options.latency, "latency",
              "measure the time of one sample on one thread, or --threads; on the CPU in ONNX Runtime if the "
              "Python has it")
      .value(options.python, "python", "PROGRAM",
             "a Python with onnxruntime (default: FAKEQUANT_PYTHON, or python3)");
  add_general_flags(set, options.general);
  set.need({"python", "device", "threads"}, "latency");
  return set;
}

std::size_t name_width(const std::vector<RunSummary>& runs) {
  std::size_t width = 3;
  for (const auto& run : runs) width = std::max(width, run.name.size());
  return width;
}

void print_runs(const std::vector<RunSummary>& runs, bool latency, Output& output, ordered_json& result) {
  const auto differing = differing_flags(runs);
  const std::size_t width = name_width(runs);
  output.line(fmt::format("{:<{}}  {:<12}  {:>8}   {:>7}  {:>5}  {:>11}  {:>8}", "run", width, "format",
                          "accuracy", "loss", "bits", "weight bytes", "step, ms") +
              (latency ? "  sample, ms" : ""));
  result["runs"] = ordered_json::array();
  bool of_training = false;
  for (const auto& run : runs) {
    output.line(run_line(run, width, differing));
    result["runs"].push_back(run_json(run));
    of_training = of_training || (run.accuracy && !run.validated);
  }
  if (of_training) output.line("* of training: --val-fraction keeps samples to validate on");
}

Plan plan_compare(const CompareOptions& options, PlannedFiles&) {
  if (options.runs.empty())
    throw ArgumentError("[compare] no run is named: use run directories, as runs/float/ runs/int8/");
  // Shared by the steps: the first one adds latencies, the others print them.
  const auto runs = std::make_shared<std::vector<RunSummary>>();
  for (const auto& path : options.runs) runs->push_back(read_run(path));
  Plan plan;
  if (options.latency)
    plan.add("time one sample through each network", [&options, runs](Output&, ordered_json&) {
      for (std::size_t i = 0; i < runs->size(); ++i) add_latency(runs->at(i), options.runs[i], options);
    });
  plan.add(fmt::format("print a table of {} runs", runs->size()),
           [&options, runs](Output& output, ordered_json& result) {
             print_runs(*runs, options.latency, output, result);
             result["html"] = nullptr;
           });
  if (!options.html.empty())
    plan.add("write " + options.html, [&options, runs](Output&, ordered_json& result) {
      write_file(options.html, html::compare_html(*runs));
      result["html"] = options.html;
    });
  return plan;
}

}  // namespace

Command compare_command() {
  return {"compare", "print run directories as one table", typed(compare_flags, plan_compare)};
}

}  // namespace fq::cli
