#pragma once

/// The forms in which `export` writes a network.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/cli/flags/flags.h"
#include "fakequant/cli/tables/output.h"
#include "fakequant/network/network.h"

namespace fq::cli {

/// One value of `export --format`.
struct ExportFormat {
  std::string_view name;
  std::string_view help;                                  ///< what --output is for it
  std::vector<WrittenFile> (*files)(const Flags& flags);  ///< what is written by --output
  bool takes_float;  ///< whether a network without quantizers may be written so
  /// Writes the network, whose batch norms are folded and quantizers calibrated, to --output; prints what
  /// people read and returns what machines read.
  nlohmann::ordered_json (*write)(Network& network, const Flags& flags, Output& output);
  /// Throws what `write` would throw for such a network and flags, in memory.
  void (*check)(Network& network, const Flags& flags);
};

/// The first is the default.
[[nodiscard]] const std::vector<ExportFormat>& export_formats();

/// --output as a file: a folder, or "out/", gives out/name.
[[nodiscard]] std::string file_for(const Flags& flags, const std::string& name);
/// For formats of two files: throws ArgumentError when --output is a device or pipe.
void check_several(const Flags& flags);
/// That file, which becomes one of `kind`; the folder "out/" is made.
[[nodiscard]] WrittenFile written_for(const Flags& flags, const std::string& name, const char* kind);

std::vector<WrittenFile> scales_files(const Flags& flags);
std::vector<WrittenFile> onnx_files(const Flags& flags);
std::vector<WrittenFile> tensorrt_cache_files(const Flags& flags);
std::vector<WrittenFile> safetensors_files(const Flags& flags);
std::vector<WrittenFile> compressed_tensors_files(const Flags& flags);
std::vector<WrittenFile> gguf_files(const Flags& flags);
std::vector<WrittenFile> executorch_files(const Flags& flags);

nlohmann::ordered_json export_scales(Network& network, const Flags& flags, Output& output);
nlohmann::ordered_json export_onnx_file(Network& network, const Flags& flags, Output& output);
nlohmann::ordered_json export_tensorrt_cache(Network& network, const Flags& flags, Output& output);
nlohmann::ordered_json export_safetensors(Network& network, const Flags& flags, Output& output);
nlohmann::ordered_json export_compressed_tensors(Network& network, const Flags& flags, Output& output);
nlohmann::ordered_json export_gguf(Network& network, const Flags& flags, Output& output);
nlohmann::ordered_json export_executorch(Network& network, const Flags& flags, Output& output);

void check_scales(Network& network, const Flags& flags);
void check_onnx_file(Network& network, const Flags& flags);
void check_tensorrt_cache(Network& network, const Flags& flags);
void check_safetensors(Network& network, const Flags& flags);
void check_compressed_tensors(Network& network, const Flags& flags);
void check_gguf(Network& network, const Flags& flags);
void check_executorch(Network& network, const Flags& flags);

}  // namespace fq::cli
