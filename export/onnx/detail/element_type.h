#pragma once

/// ONNX's numbers of element types, and our key of its metadata.

#include <optional>

#include "fakequant/core/dtype.h"

namespace fq::detail {

/// TensorProto.DataType by the numbers of the newest specification, which the classes of an older libonnx
/// hold too.
enum OnnxType : int { onnx_string = 8, onnx_bool = 9 };

/// Metadata of a model: the CRC-32C of the data beside it.
inline constexpr const char* onnx_data_crc = "fakequant.data_crc32c";

[[nodiscard]] int onnx_type(DType dtype);
/// None for types that DType has not; booleans are u8.
[[nodiscard]] std::optional<DType> dtype_of_onnx(int type);

}  // namespace fq::detail
