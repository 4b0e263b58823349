#pragma once

/// What a GGUF file says of its network, in the words of config.json.

#include <nlohmann/json.hpp>
#include <string>

#include "fakequant/export/gguf/file.h"

namespace fq::detail {

/// config.json of a file of the architectures gpt2, llama and qwen2. Throws FileError naming the file for
/// another, for keys that are missing or of another type, and for rotary positions scaled otherwise than
/// linear and yarn.
[[nodiscard]] nlohmann::ordered_json gguf_config(const GgufModel& model, const std::string& file);
/// llama.cpp's name of a tensor of transformers; empty for one that it has not.
[[nodiscard]] std::string gguf_name(const std::string& theirs);

}  // namespace fq::detail
