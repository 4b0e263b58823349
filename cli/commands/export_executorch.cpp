#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/commands/export_formats.h"
#include "fakequant/cli/engines/engines.h"
#include "fakequant/cli/flags/output_kind.h"
#include "fakequant/cli/system/programs.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/export/executorch/detail/network.h"
#include "fakequant/layers/config/target_profile.h"
#include "fakequant/layers/quantize.h"

namespace fq::cli {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kMostBytes = std::int64_t{4} << 30;

/// Throws ArgumentError for another target, because XNNPACK would compute other products from the same codes.
void check_xnnpack_target(const Network& network) {
  const Target target = model_target(network.module());
  FQ_CHECK(target == Target::xnnpack || target == Target::ort || target == Target::none, "export",
           "the checkpoint is quantized for {}, which XNNPACK does not compute: calibrate and train with "
           "--preset {}, or with --preset int8 for ranges that are fixed",
           name(target), target_profile(Target::xnnpack).presets);
}

/// Returns the report on the program. Throws BackendError without a report.
ordered_json read_program_report(const std::string& path, const std::string& python) try {
  return fq::detail::parse_json<ordered_json>(read_file(path));
} catch (const std::exception&) {
  throw BackendError(fmt::format("[export] {} wrote no program: name another Python by --python", python));
}

/// Runs the Python that writes the program of a network. Returns its report.
ordered_json write_program(const StateDict& network, const ExportOptions& options, const std::string& path,
                           Output& output) {
  // Python writes into a temporary folder. The result is copied by AtomicFile, so that a killed Python leaves
  // no part of a file at the output path.
  const TemporaryFolder folder;
  const std::string described = folder.file("network.h5"), made = folder.file("model.pte"),
                    report = folder.file("written.json");
  // The Python module reads a file of this kind. It is not written next to the output.
  save_state(described, network, "predictions");
  const EngineHome home = engine_home(options.home, "export", "xnnpack", folder, output);
  (void)run_python("export",
                   module_words("export", home.python, "fakequant.engines.executorch_writer",
                                {"--json=" + report, "--", described, made}),
                   {folder.file("output"), folder.file("errors"), options.timeout}, path);
  ordered_json written = read_program_report(report, home.python);
  AtomicFile file(path);
  file.write(read_file(made, kMostBytes));
  file.commit();
  return written;
}

}  // namespace

std::vector<WrittenFile> executorch_files(const ExportOptions& options) {
  return {written_file(options, "model.pte", kind::executorch)};
}

ExportWriter convert_to_executorch(Network& network, const ExportOptions& options) {
  check_xnnpack_target(network);
  // Described in the plan: unsupported operators are errors before the first step.
  const auto described = fq::detail::executorch_network(network.module(), network.input_shape());
  return [described, &options](Output& output) {
    const std::string path = output_file(options, "model.pte");
    const ordered_json written = write_program(described, options, path, output);
    const auto count = [&](const char* key) { return fq::detail::whole_or<std::int64_t>(written, key, 0); };
    output.line(fmt::format("{} bytes, {} quantized layers, {} parts for XNNPACK, in {}", count("bytes"),
                            count("quantized_layers"), count("delegates"), path));
    if (written.contains("portable") && !written["portable"].empty())
      output.line(fmt::format("portable kernels compute: {}", written["portable"].dump()));
    ordered_json result{{"files", {path}}};
    result.update(written);
    return result;
  };
}

}  // namespace fq::cli
