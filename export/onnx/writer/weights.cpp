#include "fakequant/export/onnx/writer/weights.h"

#include <algorithm>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/packed_scales.h"
#include "fakequant/core/numerics/detail/minifloat.h"
#include "fakequant/core/ops/shape.h"
#include "fakequant/core/quantized.h"

namespace fq::detail {
namespace {

struct StoredType {
  DType dtype;
  int opset;
};

StoredType type_of(const Format& format, bool emulate, bool integer_factor) {
  if (format.is_integer()) {
    const IntFormat& f = format.integer();
    const bool byte = f.bits > 4 || (f.bits < 4 && integer_factor);
    if (!byte) return {f.is_unsigned ? DType::u4 : DType::i4, 21};
    if (f.bits <= 8) return {f.is_unsigned ? DType::u8 : DType::i8, 13};
    return {f.is_unsigned ? DType::u16 : DType::i16, 21};
  }
  if (format == Format(FloatFormat{5, 2})) return {DType::f8_e5m2, 19};
  if (format == Format(FloatFormat{2, 1}) && !emulate) return {DType::f4_e2m1, 23};
  return {DType::f8_e4m3, 19};
}

Tensor encoded(const Tensor& values, FloatFormat format, DType dtype) {
  const Minifloat grid = Minifloat::of(format);
  const bool packed = bit_width(dtype) < 8;
  Tensor codes = Tensor::empty(values.shape(), packed ? DType::u8 : dtype);
  auto* out = static_cast<std::uint8_t*>(codes.mutable_raw());
  const auto* v = values.data<float>();
  for (std::int64_t i = 0; i < values.numel(); ++i) out[i] = grid.encode(v[i]);
  return packed ? pack_codes(codes, dtype) : codes;
}

/// Numbers that the type holds exactly.
Tensor stored(const Tensor& values, DType dtype) {
  switch (dtype) {
    case DType::f8_e4m3:
      return encoded(values, {4, 3}, dtype);
    case DType::f8_e5m2:
      return encoded(values, {5, 2}, dtype);
    case DType::f4_e2m1:
      return encoded(values, {2, 1}, dtype);
    case DType::i4:
      return pack_codes(values.to(DType::i8), dtype);
    case DType::u4:
      return pack_codes(values.to(DType::u8), dtype);
    default:
      return values.to(dtype);
  }
}

Tensor turned(const Tensor& matrix) { return ops::transpose(Variable(matrix), {1, 0}).tensor(); }

/// Scales as DequantizeLinear takes them: rank 0, a list along `axis`, or, with `block`, as many axes as the
/// codes.
struct Scales {
  Tensor values;
  int axis = -1;
  std::int64_t block = 0;
};

/// The axis that keeps blocks: the last one with blocks of several elements that does not end in one block.
int block_axis(const Shape& shape, const Shape& block) {
  int axis = static_cast<int>(shape.size()) - 1;
  for (int a = 0; a < static_cast<int>(shape.size()); ++a) {
    const auto i = static_cast<std::size_t>(a);
    if (block[i] > 1 && block[i] < shape[i]) axis = a;
  }
  return axis;
}

/// Repeats the scales along every axis but one.
Scales in_blocks(const Grid& grid, const Shape& shape) {
  const Shape block = grid.granularity.block_shape(shape), counts = grid.granularity.scale_shape(shape);
  const int axis = block_axis(shape, block);
  Shape out = shape;
  const auto kept = static_cast<std::size_t>(axis);
  out[kept] = counts[kept];
  Scales scales{Tensor::empty(out), axis, std::min(block[kept], shape[kept])};
  const auto from = grid.scale.to_vector<float>();
  auto* to = scales.values.mutable_data<float>();
  Shape index(shape.size());
  for (std::int64_t i = 0; i < numel(out); ++i) {
    std::int64_t j = 0;
    for (std::size_t a = 0; a < shape.size(); ++a)
      j = j * counts[a] + (a == kept ? index[a] : index[a] / block[a]);
    to[i] = from[static_cast<std::size_t>(j)];
    for (std::size_t a = shape.size(); a-- > 0 && ++index[a] == out[a];) index[a] = 0;
  }
  return scales;
}

Scales scales_of(const Grid& grid, const Shape& shape, bool transposed) {
  if (grid.granularity.is_per_tensor()) return {grid.scale.reshape({})};
  const int axis = grid.granularity.single_axis(static_cast<int>(shape.size()));
  if (axis >= 0 && grid.scale_bits == 0)
    return {grid.scale.reshape({grid.scale.numel()}), transposed ? 1 - axis : axis};
  Scales scales = in_blocks(grid, shape);
  if (transposed) scales = {turned(scales.values), 1 - scales.axis, scales.block};
  return scales;
}

/// Adds the scales in the form of their own bits.
std::string add_scales(GraphBuilder& graph, const OnnxExportOptions& options, const std::string& path,
                       const Grid& grid, const Scales& scales, GraphBuilder::Attributes& attributes) {
  const std::string name = path + ".scale";
  if (grid.scale_bits == 1 && !options.emulate) {
    graph.needs_opset(24);
    attributes.emplace_back("output_dtype", std::int64_t{1});
    return graph.constant(name, scale_codes(scales.values, grid));
  }
  if (grid.scale_bits != 4) return graph.constant(name, scales.values);
  const std::string unit = graph.constant(path + ".scale_of_scales", Tensor::scalar(grid.unit));
  const std::string parts = graph.constant(name, scale_codes(scales.values, grid));
  return graph.add("DequantizeLinear", name, {parts, unit});
}

}  // namespace

std::string add_weight(GraphBuilder& graph, const OnnxExportOptions& options, const std::string& name,
                       const QuantizedTensor& codes, const WeightForm& form) {
  const StoredType type = type_of(codes.grid.format, options.emulate, form.integer_factor);
  const Scales scales = scales_of(codes.grid, codes.shape(), form.transposed);
  graph.needs_opset(scales.block > 0 ? std::max(type.opset, 21) : type.opset);
  const Tensor values = code_values(codes).to(Layout::row_major);
  const std::string path = codes.grid.name.empty() ? name + ".quantizer" : codes.grid.name;
  GraphBuilder::Attributes attributes;
  if (scales.axis >= 0) attributes.emplace_back("axis", std::int64_t{scales.axis});
  if (scales.block > 0) attributes.emplace_back("block_size", scales.block);
  std::vector<std::string> inputs{
      graph.constant(name, stored(form.transposed ? turned(values) : values, type.dtype)),
      add_scales(graph, options, path, codes.grid, scales, attributes)};
  if (scales.block == 0)
    inputs.push_back(graph.constant(path + ".zero_point", Tensor::zeros(scales.values.shape(), type.dtype)));
  return graph.add("DequantizeLinear", path, std::move(inputs), std::move(attributes), path + ".floats");
}

}  // namespace fq::detail
