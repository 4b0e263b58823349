#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/commands/export_formats.h"
#include "fakequant/cli/engines/engine_home.h"
#include "fakequant/cli/flags/output_kind.h"
#include "fakequant/cli/python_script.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/core/io/state_file.h"
#include "fakequant/export/executorch/detail/network.h"
#include "fakequant/layers/config/target_profile.h"
#include "fakequant/layers/quantize.h"

namespace fq::cli {
namespace {

using nlohmann::ordered_json;

constexpr double kMostSeconds = 1e9;
constexpr std::int64_t kMostBytes = std::int64_t{4} << 30;

/// Of a network for another engine the product of the same codes would be another number.
void check_target(Network& network) {
  const Target target = target_of(network.module());
  FQ_CHECK(target == Target::xnnpack || target == Target::ort || target == Target::none, "export",
           "the checkpoint is quantized for {}, which XNNPACK does not compute: calibrate and train with "
           "--preset {}, or with --preset int8 for ranges that are fixed",
           name(target), profile_of(Target::xnnpack).presets);
}

/// Returns the report on the program. Throws BackendError if there is none.
ordered_json told_of(const std::string& path, const std::string& python) try {
  return fq::detail::parse_json<ordered_json>(read_file(path));
} catch (const std::exception&) {
  throw BackendError(fmt::format("[export] {} wrote no program: name another Python by --python", python));
}

}  // namespace

std::vector<WrittenFile> executorch_files(const Flags& flags) {
  return {written_for(flags, "model.pte", kind::executorch)};
}

void check_executorch(Network& network, const Flags& flags) {
  check_target(network);
  (void)flags.number("timeout", 0, kMostSeconds);
  (void)fq::detail::executorch_network(network.module(), network.input_shape());
}

ordered_json export_executorch(Network& network, const Flags& flags, Output& output) {
  check_target(network);
  const std::string path = file_for(flags, "model.pte");
  const TemporaryFolder folder;
  const std::string described = folder.file("network.h5"), made = folder.file("model.pte"),
                    report = folder.file("written.json");
  save_state(described, fq::detail::executorch_network(network.module(), network.input_shape()),
             "predictions");
  const EngineHome home = engine_home(flags, "xnnpack", folder, output);
  const ProgramLimits limits{folder.file("output"), folder.file("errors"),
                             flags.number("timeout", 0, kMostSeconds)};
  run_python(flags,
             module_words(flags.command(), home.python, "fakequant.engines.executorch_writer",
                          {"--json=" + report, "--", described, made}),
             limits, path);
  ordered_json told = told_of(report, home.python);
  AtomicFile file(path);
  file.write(read_file(made, kMostBytes));
  file.commit();
  const auto count = [&](const char* key) { return fq::detail::whole_or<std::int64_t>(told, key, 0); };
  output.line(fmt::format("{} bytes, {} quantized layers, {} parts for XNNPACK, in {}", count("bytes"),
                          count("quantized_layers"), count("delegates"), path));
  if (told.contains("portable") && !told["portable"].empty())
    output.line(fmt::format("portable kernels compute: {}", told["portable"].dump()));
  ordered_json result{{"files", {path}}};
  result.update(told);
  return result;
}

}  // namespace fq::cli
