#pragma once

/// The JSON header of a safetensors file, and its element types.

#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/core/dtype.h"
#include "fakequant/export/safetensors/file.h"

namespace fq::detail {

/// A writer orders tensors by descending `rank` of their types. `dtype` is empty for types without a DType.
struct SafetensorsType {
  std::string_view name;
  int bits;
  std::optional<DType> dtype;
  int rank = 0;
};

/// Null for a name that the format has not.
[[nodiscard]] const SafetensorsType* safetensors_type(std::string_view name) noexcept;
/// Null for a type that the format has not.
[[nodiscard]] const SafetensorsType* safetensors_type(DType dtype) noexcept;

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
