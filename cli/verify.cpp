#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include <fmt/format.h>

#include "fakequant/cli/child_process.h"
#include "fakequant/cli/command.h"
#include "fakequant/cli/data.h"
#include "fakequant/cli/flag_groups.h"
#include "fakequant/cli/folding.h"
#include "fakequant/cli/predictions.h"
#include "fakequant/cli/temporary_folder.h"
#include "fakequant/cli/uniform_samples.h"
#include "fakequant/cli/warnings.h"
#include "fakequant/core/check.h"
#include "fakequant/core/io/atomic_file.h"
#include "fakequant/core/io/state_file.h"
#include "fakequant/export/onnx/file.h"
#include "fakequant/export/onnx/tensorrt_rules.h"

namespace fq::cli {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kPartBytes = std::int64_t{128} << 20;  // of predictions in one file
constexpr std::int64_t kMostSamples = std::int64_t{1} << 40;

/// Beside the command as installed and as built: ../share/fakequant/scripts.
std::string script_path() {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path command = fs::read_symlink("/proc/self/exe", error);
  const fs::path script = command.parent_path().parent_path() / "share/fakequant/scripts/verify_onnx.py";
  if (!fs::exists(script, error))
    throw FileError(script.string(), "",
                    fmt::format("[verify] {} is not there: install fakequant whole", script.string()));
  return script.string();
}

std::string python_of(const Flags& flags) {
  if (flags.given("python")) return flags.text("python");
  const char* named = std::getenv("FAKEQUANT_PYTHON");
  return named == nullptr || *named == '\0' ? "python3" : named;
}

Network load_to_compare(const Flags& flags, Output& output) {
  Network network = load_network(flags.required("checkpoint"));
  check_calibrated(network, "verify");
  fold_first(network, output);
  network.module->to(device_of(flags));
  return network;
}

/// Files of what the library itself computes for the data and for random inputs.
std::vector<std::string> write_predictions(Network& network, const Flags& flags,
                                           const TemporaryFolder& folder, Output& output) {
  const auto batch = flags.integer("batch", 1, 1 << 20), random = flags.integer("random", 0, kMostSamples);
  const auto seed = static_cast<std::uint64_t>(flags.integer("seed", 0, std::int64_t{1} << 62));
  const auto data = open_data(flags, flags.text("split"), 0, false);
  check_fits(network, *data, "verify");
  FQ_CHECK(random == 0 || !data->token_ids(), "verify",
           "--random {}: samples of token ids have no range of values: leave it out", random);
  std::vector<std::string> files;
  const auto save = [&](const StateDict& state) {
    files.push_back(folder.file(fmt::format("part{}.h5", files.size())));
    save_state(files.back(), state, "predictions");
  };
  const PredictionOptions options{.batch = batch, .inputs = true, .codes = true, .part_bytes = kPartBytes};
  predict_parts(network, data, options, save, output, "verify");
  if (random == 0) return files;
  const auto range = range_of(data, batch);
  predict_parts(network, std::make_shared<UniformSamples>(data->sample_shape(), random, range, seed), options,
                save, output, "verify random");
  return files;
}

std::vector<std::string> command_line(const Flags& flags, const std::vector<std::string>& files,
                                      const std::string& report) {
  std::vector<std::string> words{python_of(flags), script_path(), flags.required("model")};
  words.insert(words.end(), files.begin(), files.end());
  words.insert(words.end(), {"--json", report});
  for (const char* name : {"level", "tolerance", "code-tolerance", "threads"})
    if (flags.given(name)) words.insert(words.end(), {std::string("--") + name, flags.text(name)});
  std::istringstream options(flags.text("session"));
  for (std::string option; std::getline(options, option, ',');)
    words.insert(words.end(), {"--session", option});
  return words;
}

ordered_json compare_in_engine(const Flags& flags, const std::vector<std::string>& files,
                               const TemporaryFolder& folder, Output& output) {
  const std::string report = folder.file("counts.json"), said = folder.file("output"),
                    errors = folder.file("errors");
  const auto words = command_line(flags, files, report);
  const int status = run_program(words, said, errors);
  if (stop_requested()) throw Interrupted("[verify] stopped by Ctrl-C");
  if (status > 1 || !std::filesystem::exists(report)) {
    std::string message = one_line(read_file(errors));
    message.erase(message.find_last_not_of(' ') + 1);
    FQ_CHECK(status != 3, "verify", "{}", message);
    if (status == 2) throw FileError(flags.text("model"), "", "[verify] " + message);
    throw BackendError(fmt::format("[verify] {} ended with status {}: {}", words[0], status, message));
  }
  std::ifstream lines(said);
  for (std::string line; std::getline(lines, line);) output.line(line);
  ordered_json result{{"model", flags.text("model")}, {"checkpoint", flags.text("checkpoint")}};
  result.update(ordered_json::parse(read_file(report)));
  if (status == 1)
    throw FailedCheck(fmt::format("[verify] {} does not compute what {} does", flags.text("model"),
                                  flags.text("checkpoint")),
                      result);
  return result;
}

ordered_json verify_in_onnxruntime(const Flags& flags, Output& output) {
  const std::string model = flags.required("model");
  if (!std::filesystem::is_regular_file(model))
    throw FileError(
        model, "",
        fmt::format("[verify] {} is not a file: write it by fakequant export --format onnx", model));
  Network network = load_to_compare(flags, output);
  const TemporaryFolder folder;
  const auto files = write_predictions(network, flags, folder, output);
  return compare_in_engine(flags, files, folder, output);
}

ordered_json verify_for_tensorrt(const Flags& flags, Output& output) {
  const std::string path = flags.required("model");
  const OnnxModel model = load_onnx(path);
  const auto breaks = tensorrt_rule_breaks(model);
  ordered_json listed = ordered_json::array();
  for (const auto& [node, rule] : breaks) {
    output.line(fmt::format("{}: {}", node, rule));
    listed.push_back({{"node", node}, {"rule", rule}});
  }
  output.line(fmt::format("tensorrt: rules checked, engine not run: {} breaks in {} nodes", breaks.size(),
                          model.nodes.size()));
  ordered_json result{{"model", path},
                      {"target", "tensorrt"},
                      {"engine_run", false},
                      {"nodes", model.nodes.size()},
                      {"breaks", listed}};
  if (!breaks.empty())
    throw FailedCheck(fmt::format("[verify] TensorRT does not take {}: {} breaks of its rules, first at {}",
                                  path, breaks.size(), breaks.front().node),
                      result);
  return result;
}

}  // namespace

FlagSet verify_flags() {
  FlagSet set(
      "verify",
      "Runs an exported ONNX file in ONNX Runtime and counts codes and logits that are not those of the "
      "checkpoint; or checks it against TensorRT's rules. Exit status 1 when it fails.",
      "MODEL.onnx --checkpoint FILE --data FILE [flags]");
  set.group("Files")
      .argument("model", "FILE", "the exported network")
      .value("checkpoint,c", "FILE", "the checkpoint that it was exported from");
  add_data_flags(set, "test");
  set.value("random", "SAMPLES", "uniform random samples too, in the range of the data", "0")
      .value("seed", "NUMBER", "of random samples", "0");
  set.group("Engine")
      .value("target", "NAME", "ort: run it; tensorrt: check the rules, without checkpoint and data", "ort")
      .value("level", "NAME",
             "of optimisation: disabled, basic, extended or all (default: all; basic for FP8 and 4-bit "
             "activations)")
      .value("session", "KEY=VALUE,..",
             "options of the engine's session (default: those that keep the numbers)")
      .value("tolerance", "SHARE",
             "of logits, relative to the largest; 0: the same bits (default: 0 for 8-bit integers; 1e-6 for "
             "floats, "
             "4-bit weights and weights in blocks)")
      .value("code-tolerance", "SHARE", "of codes that may differ", "0")
      .value("python", "FILE",
             "a Python 3 with onnxruntime, onnx and h5py (default: FAKEQUANT_PYTHON, or python3)");
  add_general_flags(set);
  return set;
}

ordered_json verify(const Flags& flags, Output& output) {
  apply_general_flags(flags);
  if (flags.choice("target", {"ort", "tensorrt"}) == "tensorrt") return verify_for_tensorrt(flags, output);
  if (flags.given("level"))
    static_cast<void>(flags.choice("level", {"disabled", "basic", "extended", "all"}));
  if (flags.given("tolerance")) static_cast<void>(flags.number("tolerance", 0, 1e6));
  static_cast<void>(flags.number("code-tolerance", 0, 1));
  return verify_in_onnxruntime(flags, output);
}

}  // namespace fq::cli
