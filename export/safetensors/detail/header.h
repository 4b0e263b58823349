#pragma once

/// The JSON header of a safetensors file.

#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/export/safetensors/file.h"

namespace fq::detail {

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  ///< by begin
  std::map<std::string, std::string> metadata;
};

/// What is wrong with a header, without the file's name.
class BadHeader : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Reads `text`, of a file that has `data_bytes` bytes after it. Nothing but an object of objects `{"dtype",
/// "shape", "data_offsets"}`, one of strings under "__metadata__", and spaces after it passes. Allocates no
/// more than some times the length of the text. Throws BadHeader.
[[nodiscard]] SafetensorsHeader parse_safetensors_header(std::string_view text, std::int64_t data_bytes);

}  // namespace fq::detail
