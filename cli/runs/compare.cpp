#include <filesystem>

#include <fmt/format.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/flags/flag_groups.h"
#include "fakequant/cli/flags/output_kind.h"
#include "fakequant/cli/runs/latency.h"
#include "fakequant/cli/runs/run_folder.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/report/detail/runs/run_summary.h"

namespace fq::cli {
namespace {

namespace fs = std::filesystem;
using fq::detail::RunSummary;
using nlohmann::ordered_json;

RunSummary read_run(const std::string& path, const Flags& flags) {
  std::error_code none;
  if (!fs::is_directory(path, none))
    throw FileError(
        path, "",
        fmt::format("[compare] {} is no run directory: give folders that train or qat wrote (-o RUN/)",
                    path));
  const RunFolder folder{path.ends_with('/') ? path : path + "/"};
  if (!fs::exists(folder.config(), none))
    throw FileError(
        path, "",
        fmt::format("[compare] {} is no run directory, it has no config.json: give folders that train "
                    "or qat wrote (-o RUN/)",
                    path));
  const auto config = read_run_config(folder);
  RunSummary run = summary_of(fs::path(folder.path).parent_path().string(), config,
                              fq::detail::RunRecord::load(folder.metrics()));
  const std::string checkpoint = read_checkpoint_path(folder.path);
  if (!flags.on("latency") || !fs::is_regular_file(checkpoint, none)) return run;
  if (auto latency = latency_of(checkpoint, flags)) {
    run.latency_ms = latency->milliseconds;
    run.engine = std::move(latency->engine);
  }
  return run;
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

}  // namespace

FlagSet compare_flags() {
  FlagSet set("compare", "Puts run directories beside each other.", "RUN.. [flags]");
  set.group("Runs")
      .argument("runs", "RUN ..", "run directories, as train and qat write them")
      .output("html", "FILE", "write a page with a table and a figure", kind::page)
      .toggle(
          "latency",
          "time one sample through the network of each run: as ONNX in ONNX Runtime where the Python has it "
          "and --device is cpu, else here; on one thread, or --threads")
      .value("python", "PROGRAM", "a Python with onnxruntime (default: FAKEQUANT_PYTHON, or python3)");
  add_general_flags(set);
  set.need({"python", "device", "threads"}, "latency");
  return set;
}

ordered_json compare(const Flags& flags, Output& output) {
  apply_general_flags(flags);
  if (flags.list("runs").empty())
    throw ArgumentError("[compare] no run is named: give run directories, as runs/float/ runs/int8/");
  std::vector<RunSummary> runs;
  std::size_t width = 3;
  for (const auto& path : flags.list("runs")) {
    runs.push_back(read_run(path, flags));
    width = std::max(width, runs.back().name.size());
  }
  const auto differing = differing_flags(runs);
  output.line(fmt::format("{:<{}}  {:<12}  {:>8}   {:>7}  {:>5}  {:>11}  {:>8}", "run", width, "format",
                          "accuracy", "loss", "bits", "weight bytes", "step, ms") +
              (flags.on("latency") ? "  sample, ms" : ""));
  ordered_json list = ordered_json::array();
  bool of_training = false;
  for (const auto& run : runs) {
    output.line(run_line(run, width, differing));
    list.push_back(run_json(run));
    of_training = of_training || (run.accuracy && !run.validated);
  }
  if (of_training) output.line("* of training: --val-fraction keeps samples to validate on");
  if (!flags.text("html").empty()) write_file(flags.text("html"), html::compare_html(runs));
  return {{"runs", list},
          {"html", flags.text("html").empty() ? ordered_json(nullptr) : ordered_json(flags.text("html"))}};
}

}  // namespace fq::cli
