#include "fakequant/export/onnx/reader/quantized/stored_grid.h"

#include <cmath>

#include "fakequant/core/numerics/detail/minifloat.h"
#include "fakequant/core/quantized.h"
#include "fakequant/export/quantized/detail/file_grids.h"

namespace fq::detail {
namespace {

/// Returns integers, or the values of minifloats.
Tensor numbers(const Tensor& stored) {
  if (bit_width(stored.dtype()) < 8) return unpack_codes(stored).to(DType::f32);
  if (stored.dtype() != DType::f8_e4m3) return stored.to(DType::f32);
  const Minifloat grid = Minifloat::of({4, 3});
  Tensor out = Tensor::empty(stored.shape());
  const auto* bits = static_cast<const std::uint8_t*>(stored.raw());
  for (std::int64_t i = 0; i < out.numel(); ++i) out.mutable_data<float>()[i] = grid.decode(bits[i]);
  return out;
}

bool is_signed(DType type) { return type == DType::i4 || type == DType::i8 || type == DType::i16; }

bool is_code(DType type) {
  return is_signed(type) || type == DType::u4 || type == DType::u8 || type == DType::u16;
}

Tensor read_scale(const NodeReader& node, const FindConstant& constant) {
  node.check(node.has_input(1), "its scale is missing");
  const Tensor scale = constant(node.node().inputs[1]);
  if (!scale.defined())
    node.fail("its scale '{}' is computed or quantized itself: constant scales are supported",
              node.node().inputs[1].substr(0, 100));
  node.check(is_floating(scale.dtype()) && bit_width(scale.dtype()) >= 16 && scale.numel() > 0,
             "its scale is {}", scale.describe());
  const Tensor values = scale.to(DType::f32);
  for (const float v : values.to_vector<float>())
    node.check(v > 0 && std::isfinite(v), "its scale is {}: it must be positive", v);
  return values;
}

/// Returns the zero point, which must be the same for all scales.
// Quantizers here have one zero point, which follows from signed or unsigned codes.
int read_zero_point(const NodeReader& node, const FindConstant& constant, DType type, const Tensor& scale) {
  if (!node.has_input(2)) return 0;
  const Tensor stored = constant(node.node().inputs[2]);
  node.check(stored.defined() && stored.numel() > 0, "its zero point '{}' is computed",
             node.node().inputs[2].substr(0, 100));
  node.check(stored.numel() == scale.numel(), "its zero point is {}, its scale {}: both need one shape",
             stored.describe(), scale.describe());
  node.check(stored.dtype() == type, "its zero point is {}, its codes are {}", stored.describe(), name(type));
  const auto all = numbers(stored).to_vector<float>();
  for (const float v : all)
    node.check(v == all[0], "its zero points are {} and {}: one zero point is supported", all[0], v);
  return static_cast<int>(all[0]);
}

/// Returns the integer format: signed if the zero point is in the middle of the type, unsigned if it is the
/// lowest number.
IntFormat stored_format(const NodeReader& node, DType type, int zero_point) {
  const int bits = bit_width(type), middle = 1 << (bits - 1);
  const int above_lowest = zero_point + (is_signed(type) ? middle : 0);
  if (above_lowest == middle) return {bits, false, false};
  if (above_lowest == 0) return {bits, true, false};
  node.fail(
      "its zero point is {}: allowed are {} (signed codes) and {} (unsigned codes). Quantize symmetrically, "
      "in ONNX "
      "Runtime with extra_options ActivationSymmetric and WeightSymmetric",
      zero_point, zero_point - above_lowest + middle, zero_point - above_lowest);
}

}  // namespace

StoredGrid stored_grid(const NodeReader& node, const FindConstant& constant, DType type) {
  StoredGrid out;
  out.type = type;
  out.origin = fmt::format("node '{}' ({})",
                           node.node().name.empty() && !node.node().outputs.empty()
                               ? node.node().outputs[0].substr(0, 100)
                               : node.node().name.substr(0, 100),
                           node.node().op);
  out.scale = read_scale(node, constant);
  out.zero_point = read_zero_point(node, constant, type, out.scale);
  if (type == DType::f8_e4m3)
    out.format = FloatFormat{4, 3};
  else if (is_code(type))
    out.format = stored_format(node, type, out.zero_point);
  else
    node.fail("its codes are {}: integers of up to 16 bits and E4M3 are supported", name(type));
  // Files also store one scale as [1].
  if (out.scale.numel() == 1) {
    out.scale = out.scale.reshape({});
    return out;
  }
  out.axis = static_cast<int>(node.integer("axis", 1, -8, 7));
  out.block = node.integer("block_size", 0, 0, kLargestSize);
  return out;
}

Tensor subtract_zero_point(const Tensor& stored, const StoredGrid& grid) {
  Tensor out = numbers(stored).clone();
  for (std::int64_t i = 0; i < out.numel(); ++i)
    out.mutable_data<float>()[i] -= static_cast<float>(grid.zero_point);
  return out;
}

Granularity scale_granularity(const NodeReader& node, const Tensor& codes, const StoredGrid& grid) {
  if (grid.scale.rank() == 0) return Granularity::per_tensor();
  const int rank = codes.rank(), axis = grid.axis < 0 ? grid.axis + rank : grid.axis;
  node.check(axis >= 0 && axis < rank, "axis {} of codes of {}", grid.axis, codes.describe());
  Shape wanted = codes.shape();
  auto& size = wanted[static_cast<std::size_t>(axis)];
  Granularity by = Granularity::per_axis({axis});
  if (grid.block > 0) {
    by = Granularity::blocks({{axis, grid.block}});
    size = (size + grid.block - 1) / grid.block;
  } else {
    wanted = {size};
  }
  node.check(grid.scale.shape() == wanted, "its scale is {}, its codes {} need {}", grid.scale.describe(),
             codes.describe(), to_string(wanted));
  return by;
}

Tensor dequantize_codes(const NodeReader& node, const Tensor& codes, const StoredGrid& grid) {
  return scaled_codes(codes, grid.scale, scale_granularity(node, codes, grid));
}

ClippedCodes clipped_codes(const OnnxNode& clip, const FindConstant& constant, const StoredGrid& grid) {
  const NodeReader reader(clip);
  reader.check(grid.format.is_integer(), "it clips codes of E4M3");
  const IntFormat whole = grid.format.integer();
  const auto bound = [&](std::size_t i, int fallback) {
    if (!reader.has_input(i)) return fallback;
    const Tensor value = constant(clip.inputs[i]);
    reader.check(value.defined() && value.numel() == 1 && bit_width(value.dtype()) >= 8,
                 "its bounds are not constants");
    return static_cast<int>(value.item()) - grid.zero_point;
  };
  const int lowest = bound(1, whole.lower()), highest = bound(2, whole.upper());
  const bool relu = lowest == 0 && !whole.is_unsigned;
  // Finds the format with these bounds. A lowest code of 0 of signed codes is a ReLU.
  for (int bits = 2; bits <= whole.bits; ++bits)
    for (const bool narrow : {false, true}) {
      const IntFormat format{bits, whole.is_unsigned, narrow};
      if (whole.is_unsigned && narrow) continue;
      if (highest == format.upper() && (relu || lowest == format.lower())) return {format, relu};
    }
  // Both bounds are 0 for a range that had only zeros in calibration (has_no_range of the exporter).
  reader.check(lowest == 0 && highest == 0, "it leaves the codes {} to {}, which match no number of bits",
               lowest, highest);
  return {grid.format, relu};
}

}  // namespace fq::detail
