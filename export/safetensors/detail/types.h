#pragma once

/// The element types of safetensors.

#include <optional>
#include <string_view>

#include "fakequant/core/dtype.h"

namespace fq::detail {

/// `rank` is the place among types in which a writer orders tensors, the last first; `dtype` is ours, if any.
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

}  // namespace fq::detail
