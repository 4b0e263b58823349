#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include <fmt/format.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/data.h"
#include "fakequant/cli/engine_run.h"
#include "fakequant/cli/engines/layer_recorder.h"
#include "fakequant/cli/flags/flag_groups.h"
#include "fakequant/cli/folding.h"
#include "fakequant/cli/predictions.h"
#include "fakequant/cli/uniform_samples.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/state_file.h"
#include "fakequant/export/onnx/model.h"
#include "fakequant/export/onnx/tensorrt_rules.h"

namespace fq::cli {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kPartBytes = std::int64_t{128} << 20;  // of predictions in one file
constexpr std::int64_t kLayerSamples = 4;                     // whose layers are compared one by one
constexpr std::int64_t kMostSamples = std::int64_t{1} << 40;

Network load_to_compare(const Flags& flags, const VerifyEngine& engine) {
  Network network = load_network(flags.required("checkpoint"));
  check_calibrated(network, "verify");
  check_target(engine, network);
  network.module->to(device_of(flags));
  return network;
}

/// The first of several inputs that is of whole numbers; empty where none is.
std::string whole_input(const Network& network) {
  for (const auto& node : network.identity.at("model").value("nodes", nlohmann::json::array())) {
    if (node.value("type", std::string()) != "input_part") continue;
    const auto& options = node.at("options");
    if (!options.value("type", std::string("f32")).starts_with('f'))
      return options.at("name").get<std::string>();
  }
  return {};
}

/// The data, and random samples where they are asked for.
std::vector<std::shared_ptr<const Dataset>> samples_of(Network& network, const Flags& flags) {
  const auto random = flags.integer("random", 0, kMostSamples);
  const auto seed = static_cast<std::uint64_t>(flags.integer("seed", 0, std::int64_t{1} << 62));
  const auto data = open_data(flags, flags.text("split"), 0, false);
  check_fits(network, *data, "verify");
  FQ_CHECK(random == 0 || whole_input(network).empty(), "verify",
           "--random {}: samples of the input '{}' are whole numbers: leave it out", random,
           whole_input(network));
  if (random == 0) return {data};
  const auto batch = flags.integer("batch", 1, 1 << 20);
  if (data->token_ids())
    return {data,
            std::make_shared<UniformTokens>(data->sample_shape(), random, tokens_of(data, batch), seed)};
  return {data, std::make_shared<UniformSamples>(data->sample_shape(), random, range_of(data, batch), seed)};
}

void count_expected(const StateDict& state, Expected& expected) {
  expected.samples += state.at("x").dim(0);
  expected.logits += state.at("logits").numel();
  const StateDict codes = state.sub("codes");
  for (const auto& name : codes.names()) expected.codes[name] += codes.at(name).numel();
}

/// Files of what a network computes; `use` is called with what is in each.
std::vector<std::string> write_predictions(Network& network, const Flags& flags, const VerifyEngine& engine,
                                           const std::string& prefix,
                                           const std::function<void(const StateDict&)>& use, Output& output) {
  const PredictionOptions options{.batch = flags.integer("batch", 1, 1 << 20),
                                  .inputs = true,
                                  .codes = engine.codes,
                                  .part_bytes = kPartBytes};
  std::vector<std::string> files;
  const auto save = [&](const StateDict& state) {
    files.push_back(fmt::format("{}{}.h5", prefix, files.size()));
    save_state(files.back(), state, "predictions");
    use(state);
  };
  for (const auto& samples : samples_of(network, flags))
    predict_parts(network, samples, options, save, output, "verify");
  return files;
}

/// What the linear layers do with the first samples; empty where there is no such layer.
std::string write_layers(Network& network, const Flags& flags, const std::string& path, Output& output) {
  const auto data = open_data(flags, flags.text("split"), 0, false);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(std::min(kLayerSamples, data->size())));
  std::iota(rows.begin(), rows.end(), 0);
  LayerRecorder recorder;
  Tensor x;
  {
    const RecordScope scope(recorder);
    for_each_batch(
        network, std::make_shared<Subset>(data, rows), kLayerSamples,
        [&](const Batch& samples, const Variable&) { x = samples.x; }, output, "verify");
  }
  StateDict state = recorder.layers();
  if (recorder.count() == 0) return {};
  state.set("x", x);
  save_state(path, state, "predictions");
  return path;
}

Expected write_expected(const Flags& flags, const VerifyEngine& engine, const TemporaryFolder& folder,
                        Output& output) {
  Network network = load_to_compare(flags, engine);
  Expected expected;
  expected.files = write_predictions(
      network, flags, engine, folder.file("part"),
      [&](const StateDict& state) { count_expected(state, expected); }, output);
  if (engine.layers) expected.layers = write_layers(network, flags, folder.file("layers.h5"), output);
  network.module->to(Device::cpu());
  if (live_batch_norms(network) == 0 || fold_network(network) == 0) return expected;
  network.module->to(device_of(flags));
  expected.folded = write_predictions(
      network, flags, engine, folder.file("folded"), [](const StateDict&) {}, output);
  return expected;
}

/// "why: what to do", as far as the engine's report tells.
std::string explanation(const ordered_json& report) {
  const auto first = [&](const char* key, const char* before) {
    const auto& texts = report.at(key);
    return texts.empty() ? std::string() : before + texts.front().get<std::string>();
  };
  return first("reasons", ": ") + first("ways", ": ");
}

/// The report, whose "same" says whether the engine computes what the checkpoint does.
ordered_json verify_in(const VerifyEngine& engine, const Flags& flags, Output& output) {
  const TemporaryFolder folder;
  const EngineHome home = engine_home(flags, engine.home, folder, output);
  const Expected expected = write_expected(flags, engine, folder, output);
  return run_engine(flags, engine, home, expected, folder, output);
}

void check_model(const std::string& model, const VerifyEngine& engine) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(model, none))
    throw FileError(model, "",
                    fmt::format("[verify] {} is not a file: write it by fakequant export --format {}", model,
                                engine.format));
}

ordered_json verify_in_engines(const Flags& flags, Output& output) {
  const std::string model = flags.required("model"), checkpoint = flags.required("checkpoint");
  const auto engines = chosen_engines(flags);
  ordered_json result{{"model", model}, {"checkpoint", checkpoint}}, reports = ordered_json::array();
  std::string failures;
  for (const VerifyEngine* engine : engines) {
    check_model(model, *engine);
    if (engines.size() > 1) output.line(fmt::format("-- {}", engine->name));
    const auto report = verify_in(*engine, flags, output);
    reports.push_back(ordered_json{{"name", engine->name}});
    reports.back().update(report);
    if (report.at("same").get<bool>()) continue;
    const std::string where = engines.size() > 1 ? fmt::format(" in {}", engine->name) : "";
    failures += fmt::format("{}{} does not compute what {} does{}{}", failures.empty() ? "" : "; ", model,
                            checkpoint, where, explanation(report));
  }
  if (flags.text("engine") == "all")
    result["engines"] = reports;
  else
    result.update(reports.front());
  result.erase("name");
  if (!failures.empty()) throw FailedCheck(fmt::format("[verify] {}", failures), result);
  return result;
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
      "Runs an exported file in the engine that it is for and counts codes and logits that are not those of "
      "the checkpoint; or checks it against TensorRT's rules. Exit status 1 when it fails.",
      "MODEL --checkpoint FILE --data FILE [flags]");
  set.group("Files")
      .argument("model", "FILE", "the exported network")
      .value("checkpoint,c", "FILE", "the checkpoint that it was exported from");
  add_data_flags(set, "test");
  set.value("random", "SAMPLES", "uniform random samples too, in the range of the data", "0")
      .value("seed", "NUMBER", "of random samples", "0");
  static const std::string engines = verify_engine_names() + ", which is every one that reads the file";
  set.group("Engine")
      .value("engine", "NAME", engines.c_str(), "ort")
      .value("target", "NAME", "ort: run it; tensorrt: check the rules, without checkpoint and data", "ort");
  add_engine_flags(set);
  add_general_flags(set);
  return set;
}

ordered_json verify(const Flags& flags, Output& output) {
  apply_general_flags(flags);
  if (flags.choice("target", {"ort", "tensorrt"}) == "tensorrt") return verify_for_tensorrt(flags, output);
  check_engine_flags(flags);
  return verify_in_engines(flags, output);
}

}  // namespace fq::cli
