#pragma once

/// Shared parts of packed tensors.

#include "fakequant/reference/detail/code_table.h"
#include "fakequant/reference/detail/rounding.h"
#include "fakequant/reference/detail/through_host.h"
#include "fakequant/reference/modelopt.h"

namespace fq::modelopt {

/// With all its tensors on a device.
[[nodiscard]] QTensor moved(QTensor q, Device device);
[[nodiscard]] inline QTensor to_host(const QTensor& q) { return moved(q, Device::cpu()); }
[[nodiscard]] inline Device tensor_device(const QTensor& q) { return q.codes.device(); }

namespace packed {

using fq::detail::map_blocks;
using fq::detail::visit_chunks;
using fq::detail::visit_rounding;

/// Throws ArgumentError unless x is f32, f16 or bf16, and has elements where it needs some.
void check_input(const Tensor& x, bool needs_elements, const char* function);
/// Throws ArgumentError unless 1 <= size <= 2^24, and even where codes are packed in pairs.
void check_block_size(std::int64_t size, bool even, const char* function);

/// The next multiple of `length`.
[[nodiscard]] constexpr std::int64_t padded_size(std::int64_t size, std::int64_t length) {
  return (size + length - 1) / length * length;
}
/// 1 along each axis, `length` along the last.
[[nodiscard]] Shape last_axis_block(const Shape& shape, std::int64_t length);
/// `shape` with its last axis divided by `length`, rounded up.
[[nodiscard]] Shape last_axis_scales(Shape shape, std::int64_t length);

/// Row-major x in another shape of the same rank: cut off, or filled up with zeros. 8 bits and wider.
[[nodiscard]] Tensor resized(const Tensor& x, const Shape& shape);
/// x as one row of whole blocks of `length`, zeros at its end.
[[nodiscard]] Tensor flattened(const Tensor& x, std::int64_t length);

/// The largest |x| of each block, NaN where there is one: f32 of shape `shape`, blocks in row-major order.
[[nodiscard]] Tensor block_amax(const Tensor& x, const Shape& block, const Shape& shape);

/// Codes below 16, one a byte, as u8 bytes of two in another shape, the earlier one in the HIGH nibble.
[[nodiscard]] Tensor packed_high_first(const Tensor& codes, const Shape& shape);
/// The first `count` codes again, one a byte.
[[nodiscard]] Tensor unpacked_high_first(const Tensor& bytes, std::int64_t count);

[[nodiscard]] Tensor dequantize_bytes(const QTensor& q, DType dtype);
[[nodiscard]] Tensor dequantize_int4(const QTensor& q, DType dtype);
[[nodiscard]] Tensor dequantize_nvfp4(const QTensor& q, DType dtype);
[[nodiscard]] Tensor dequantize_mx(const QTensor& q, DType dtype);
[[nodiscard]] Tensor dequantize_nf4(const QTensor& q, DType dtype);

}  // namespace packed
}  // namespace fq::modelopt
