#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/engines/engine_run.h"
#include "fakequant/cli/engines/expected.h"
#include "fakequant/cli/flags/flag_groups.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/io/detail/file_reader.h"
#include "fakequant/export/onnx/model.h"

namespace fq::cli {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kMostSamples = std::int64_t{1} << 40;

struct VerifyOptions {
  std::string model, checkpoint;
  std::string target = "ort";       ///< ort: runs an engine; tensorrt: checks the rules
  std::string engine_name = "ort";  ///< one of verify_engine_names()
  DataOptions data;
  std::int64_t random = 0, seed = 0;
  EngineOptions engine;
  GeneralOptions general;
};

/// Returns "reason: remedy" from the engine's report, as far as they are present.
/// The first reason is enough for a message, --json has all.
std::string explanation(const ordered_json& report) {
  const auto first = [&](const char* key, const char* before) {
    const auto& texts = report.at(key);
    return texts.empty() ? std::string() : before + texts.front().get<std::string>();
  };
  return first("reasons", ": ") + first("ways", ": ");
}

// A missing or wrong file is found before an engine is installed, which takes minutes.
void check_model(const std::string& model, const VerifyEngine& engine) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(model, none))
    throw FileError(model, "",
                    fmt::format("[verify] {} is not a file: write it by fakequant export --format {}", model,
                                engine.format));
  if (fq::detail::file_kind(model) == "a file of fakequant")
    throw FileError(model, "",
                    fmt::format("[verify] {} is a checkpoint: use the file that fakequant export --format {} "
                                "writes of it, and the checkpoint by --checkpoint",
                                model, engine.format));
}

/// An engine and the network to compare. The comparison folds the network, so each engine has its own.
struct Comparison {
  const VerifyEngine* engine;
  std::optional<Network> network;
};

/// Returns the report. "same" is true if the engine and the network compute the same.
ordered_json run_comparison(const Comparison& comparison, const std::shared_ptr<const Dataset>& data,
                            const VerifyOptions& options, Output& output) {
  const TemporaryFolder folder;
  Network network = *comparison.network;
  network.module().to(chosen_device(options.general, "verify"));
  const ExpectedOptions how{options.data.batch, options.random, options.seed};
  const Expected expected = write_expected(network, data, how, *comparison.engine, folder, output);
  return run_engine({*comparison.engine, options.engine, options.model, options.general.threads}, expected,
                    folder, output);
}

void verify_in_engines(const std::vector<Comparison>& comparisons, const std::shared_ptr<const Dataset>& data,
                       const VerifyOptions& options, Output& output, ordered_json& result) {
  result = {{"model", options.model}, {"checkpoint", options.checkpoint}};
  ordered_json reports = ordered_json::array();
  std::string failures;
  for (const Comparison& comparison : comparisons) {
    const auto name = comparison.engine->name;
    if (comparisons.size() > 1) output.line(fmt::format("-- {}", name));
    const auto report = run_comparison(comparison, data, options, output);
    reports.push_back(ordered_json{{"name", name}});
    reports.back().update(report);
    // All engines run before the command fails, so that one call reports every difference.
    if (report.at("same").get<bool>()) continue;
    const std::string where = comparisons.size() > 1 ? fmt::format(" in {}", name) : "";
    failures += fmt::format("{}{} does not compute what {} does{}{}", failures.empty() ? "" : "; ",
                            options.model, options.checkpoint, where, explanation(report));
  }
  if (options.engine_name == "all")
    result["engines"] = reports;
  else
    result.update(reports.front());
  // With one engine, its report is the result, and the name is no part of it.
  result.erase("name");
  if (!failures.empty()) throw FailedCheck(fmt::format("[verify] {}", failures), result);
}

// TensorRT is not run: its rules for explicit quantization are checked on the graph.
void verify_rules(const std::string& path, Output& output, ordered_json& result) {
  const OnnxModel model = load_onnx(path);
  const auto breaks = tensorrt_rule_breaks(model);
  ordered_json listed = ordered_json::array();
  for (const auto& [node, rule] : breaks) {
    output.line(fmt::format("{}: {}", node, rule));
    listed.push_back({{"node", node}, {"rule", rule}});
  }
  output.line(fmt::format("tensorrt: rules checked, engine not run: {} breaks in {} nodes", breaks.size(),
                          model.nodes.size()));
  result = {{"model", path},
            {"target", "tensorrt"},
            {"engine_run", false},
            {"nodes", model.nodes.size()},
            {"breaks", listed}};
  if (!breaks.empty())
    throw FailedCheck(fmt::format("[verify] TensorRT rejects {}: {} violations of its rules, first at {}",
                                  path, breaks.size(), breaks.front().node),
                      result);
}

FlagSet verify_flags(VerifyOptions& options) {
  FlagSet set("verify",
              "Runs an exported file in its engine and counts the codes and logits that differ from the "
              "checkpoint; or checks it against TensorRT's rules. Exit status 1 if the comparison fails.",
              "MODEL --checkpoint FILE --data FILE [flags]");
  set.group("Files")
      .argument(options.model, "model", "FILE", "the exported network")
      .required()
      .value(options.checkpoint, "checkpoint,c", "FILE", "the checkpoint of the export");
  add_data_flags(set, options.data, false);
  set.value(options.random, "random", "SAMPLES", {0, kMostSamples},
            "uniform random samples in the range of the data, in addition to the data")
      .value(options.seed, "seed", "NUMBER", {0, std::int64_t{1} << 62}, "seed of random samples")
      .need({"level", "session"}, "engine", {"ort", "ort_dynamic", "all"})
      .need({"engine", "random", "tolerance", "code-tolerance", "flip-tolerance", "level", "session",
             "engines", "python", "timeout"},
            "target", {"ort"});
  const auto names = verify_engine_names();
  set.group("Engine")
      .choice(options.engine_name, "engine", "NAME", names,
              fq::detail::alternatives(names) + ": every engine that reads the file")
      .choice(options.target, "target", "NAME", {"ort", "tensorrt"},
              "ort: run it; tensorrt: check the rules, without checkpoint and data");
  add_engine_flags(set, options.engine);
  add_general_flags(set, options.general);
  return set;
}

Plan plan_rules(const VerifyOptions& options, const PlannedFiles& planned) {
  if (!planned.holds(options.model))
    check_model(options.model, *std::ranges::find(verify_engines(), "ort", &VerifyEngine::name));
  Plan plan;
  plan.add(fmt::format("check {} against the rules of TensorRT", options.model),
           [&options](Output& output, ordered_json& result) { verify_rules(options.model, output, result); });
  return plan;
}

Plan plan_verify(const VerifyOptions& options, PlannedFiles& planned) {
  if (options.target == "tensorrt") return plan_rules(options, planned);
  check_given(options.checkpoint, "checkpoint", "verify");
  check_given(options.data.data, "data", "verify");
  // A malformed option is an error before an engine is installed.
  (void)session_options(options.engine.session);
  // One engine, or with "all" every engine for the suffix of the file.
  const auto engines = find_engines(options.engine_name, options.model);
  if (!planned.holds(options.model))
    for (const VerifyEngine* engine : engines) check_model(options.model, *engine);
  auto [network, data] =
      check_running(options.checkpoint, options.data, nullptr, Labels::none, planned, "verify");
  std::vector<Comparison> comparisons;
  Plan plan;
  for (const VerifyEngine* engine : engines) {
    if (network) check_target(*engine, *network);
    comparisons.push_back({engine, comparisons.empty() ? network : planned.network(options.checkpoint)});
    plan.program_checks.emplace_back([home = options.engine.home, engine] { check_packages(home, *engine); });
  }
  if (network) check_random(*network, options.random);
  plan.add(fmt::format("compare {} with {} on the group {} of {}", options.model, options.checkpoint,
                       options.data.split, options.data.data),
           [&options, comparisons, data = data](Output& output, ordered_json& result) {
             verify_in_engines(comparisons, data, options, output, result);
           });
  return plan;
}

}  // namespace

Command verify_command() {
  return {"verify", "compare an exported network in its engine with its checkpoint",
          typed(verify_flags, plan_verify), true};
}

}  // namespace fq::cli
