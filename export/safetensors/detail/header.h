#pragma once

/// JSON header of a safetensors file, and its element types.

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

/// Returns null for an unknown name.
[[nodiscard]] const SafetensorsType* safetensors_type(std::string_view name) noexcept;
/// Returns null for a type that the format does not have.
[[nodiscard]] const SafetensorsType* safetensors_type(DType dtype) noexcept;

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  ///< sorted by begin
  std::map<std::string, std::string> metadata;
};

/// Error in a header. The message does not name the file.
class BadHeader : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Parses `text`, of a file with `data_bytes` bytes after the header. Accepts only an object of objects
/// `{"dtype", "shape", "data_offsets"}`, an object of strings under "__metadata__", and spaces after it.
/// Allocates at most a small multiple of the length of the text. Throws BadHeader.
[[nodiscard]] SafetensorsHeader parse_safetensors_header(std::string_view text, std::int64_t data_bytes);

}  // namespace fq::detail
