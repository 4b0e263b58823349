#pragma once

/// Formats of the command `export`.

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/cli/data.h"
#include "fakequant/cli/engines/engines.h"
#include "fakequant/cli/flags/flag_groups.h"
#include "fakequant/cli/tables/output.h"
#include "fakequant/layers/config/quant_config.h"
#include "fakequant/network/network.h"

namespace fq::cli {

struct ExportFormat;

struct ExportOptions {
  std::string checkpoint;
  std::string output = ".";  ///< a file, a folder, or the beginning of names
  const ExportFormat* format = nullptr;
  DataOptions data;  ///< for `scales`, which counts clipped values

  std::optional<Target> target = {};  ///< onnx; empty: target of the model
  std::int64_t opset = 0;             ///< onnx; 0: the smallest with all operators
  bool emulate = false;               ///< onnx
  bool f16 = false;                   ///< gguf: type of matrices that are not quantized
  EngineHomeOptions home;             ///< executorch
  double timeout = 3600;              ///< executorch, seconds; 0: none
  bool minmax = false;                ///< trt-cache: pass for a minmax calibrator, not an entropy calibrator
  std::int64_t trt_version = 8601;    ///< trt-cache: version in the header line

  GeneralOptions general;
};

/// Writes a converted network. Prints for people and returns the result for machines.
using ExportWriter = std::function<nlohmann::ordered_json(Output& output)>;

/// One value of `export --format`.
struct ExportFormat {
  std::string_view name;
  std::string_view help;                                            ///< meaning of --output
  std::vector<WrittenFile> (*files)(const ExportOptions& options);  ///< the files of an export
  bool takes_float;  ///< whether a network without quantizers can be written
  /// Converts a network with folded batch norms and calibrated quantizers. Returns the function that writes
  /// it. Throws ArgumentError for a network that the format cannot represent.
  ExportWriter (*convert)(Network& network, const ExportOptions& options);
};

/// Returns all formats. The first one is the default.
[[nodiscard]] const std::vector<ExportFormat>& export_formats();

/// Returns --output as a file name. A folder, or "out/", gives out/name.
[[nodiscard]] std::string output_file(const ExportOptions& options, const std::string& name);
/// For formats of two files: throws ArgumentError if --output is a device or pipe.
void check_several(const ExportOptions& options);
/// Returns the file that an export writes, of the kind `kind`. The folder "out/" is created.
[[nodiscard]] WrittenFile written_file(const ExportOptions& options, const std::string& name,
                                       const char* kind);

std::vector<WrittenFile> scales_files(const ExportOptions& options);
std::vector<WrittenFile> onnx_files(const ExportOptions& options);
std::vector<WrittenFile> tensorrt_cache_files(const ExportOptions& options);
std::vector<WrittenFile> safetensors_files(const ExportOptions& options);
std::vector<WrittenFile> compressed_tensors_files(const ExportOptions& options);
std::vector<WrittenFile> gguf_files(const ExportOptions& options);
std::vector<WrittenFile> executorch_files(const ExportOptions& options);

ExportWriter convert_to_scales(Network& network, const ExportOptions& options);
ExportWriter convert_to_onnx(Network& network, const ExportOptions& options);
ExportWriter convert_to_tensorrt_cache(Network& network, const ExportOptions& options);
ExportWriter convert_to_safetensors(Network& network, const ExportOptions& options);
ExportWriter convert_to_compressed_tensors(Network& network, const ExportOptions& options);
ExportWriter convert_to_gguf(Network& network, const ExportOptions& options);
ExportWriter convert_to_executorch(Network& network, const ExportOptions& options);

}  // namespace fq::cli
