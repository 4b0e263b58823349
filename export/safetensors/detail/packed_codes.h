#pragma once

/// How files of safetensors pack codes into a tensor.

#include <string>

#include "fakequant/core/format.h"
#include "fakequant/core/tensor.h"

namespace fq::detail {

/// A tensor of a file, named in messages.
struct StoredTensor {
  std::string file, name;
  Tensor value;

  /// Throws FileError naming both.
  [[noreturn]] void fail(const std::string& why) const;
};

/// Codes as f32, of the weight's shape.
struct UnpackedCodes {
  Format format = IntFormat{};
  Tensor codes;
};

// Each throws FileError naming file and tensor for another type or shape.

/// One a byte: I8 or F8_E4M3.
[[nodiscard]] UnpackedCodes unpack_bytes(const StoredTensor& stored);
/// ModelOpt's 4 bits, U8 [rows / 2, columns]: rows 2i and 2i + 1 in the low and high nibbles of row i.
[[nodiscard]] UnpackedCodes unpack_rows(const StoredTensor& stored, std::int64_t rows);
/// E2M1, U8 [rows, columns / 2]: the even column in the low nibble.
[[nodiscard]] UnpackedCodes unpack_e2m1(const StoredTensor& stored);
/// compressed-tensors' I32 [rows, words]: codes of 4 or 8 bits from the lowest bits on, the lowest code being
/// 0, for a weight of `shape`.
[[nodiscard]] UnpackedCodes unpack_words(const StoredTensor& stored, const Shape& shape);
/// Numbers of 8 bits, F8_E4M3 or E8M0 (U8 too), as f32; they are positive and finite.
[[nodiscard]] Tensor unpack_scales(const StoredTensor& stored);

}  // namespace fq::detail
