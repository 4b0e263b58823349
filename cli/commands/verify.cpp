#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/engine_run.h"
#include "fakequant/cli/engines/expected.h"
#include "fakequant/cli/flags/flag_groups.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/file_kind.h"
#include "fakequant/export/onnx/model.h"
#include "fakequant/export/onnx/tensorrt_rules.h"

namespace fq::cli {
namespace {

using nlohmann::ordered_json;

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
  const Expected expected = write_expected(flags, engine, folder, output);
  const EngineHome home = engine_home(flags, engine.home, folder, output);
  return run_engine(flags, engine, home, expected, folder, output);
}

void check_model(const std::string& model, const VerifyEngine& engine) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(model, none))
    throw FileError(model, "",
                    fmt::format("[verify] {} is not a file: write it by fakequant export --format {}", model,
                                engine.format));
  if (fq::detail::file_kind(model) == "a file of fakequant")
    throw FileError(
        model, "",
        fmt::format("[verify] {} is a checkpoint: give the file that fakequant export --format {} "
                    "writes of it, and the checkpoint by --checkpoint",
                    model, engine.format));
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
  check_model(path, *std::ranges::find(verify_engines(), "ort", &VerifyEngine::name));
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
      .value("seed", "NUMBER", "of random samples", "0")
      .need({"level", "session"}, "engine", {"ort", "ort_dynamic", "all"})
      .need({"engine", "random", "tolerance", "code-tolerance", "flip-tolerance", "level", "session",
             "engines", "python", "timeout"},
            "target", {"ort"});
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
