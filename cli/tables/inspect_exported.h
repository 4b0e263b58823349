#pragma once

/// What `inspect` tells of files that `export` writes: ONNX, GGUF and safetensors.

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "fakequant/cli/tables/output.h"

namespace fq::cli {

/// Format, who wrote it, and its tensors by name, type and shape; nothing where the file is none of them by
/// its name. Throws as its reader does.
[[nodiscard]] std::optional<nlohmann::ordered_json> inspect_exported(const std::string& path, Output& output);

}  // namespace fq::cli
