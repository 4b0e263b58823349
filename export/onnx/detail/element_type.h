#pragma once

/// ONNX's numbers of element types, and the metadata key of fakequant.

#include <optional>

#include "fakequant/core/dtype.h"

namespace fq::detail {

/// TensorProto.DataType, with the numbers of the newest specification. An older libonnx stores newer numbers
/// too.
enum OnnxType : int { onnx_string = 8, onnx_bool = 9 };

/// Metadata key of a model: the CRC-32C of its external data.
inline constexpr const char* onnx_data_crc = "fakequant.data_crc32c";

[[nodiscard]] int onnx_type(DType dtype);
/// Returns no value for types without a DType. Booleans are u8.
[[nodiscard]] std::optional<DType> dtype_of_onnx(int type);

}  // namespace fq::detail
