#include "fakequant/export/onnx/writer/grids.h"

#include <algorithm>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/packed_scales.h"
#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/core/numerics/detail/grid_formulas.h"
#include "fakequant/core/numerics/detail/minifloat.h"
#include "fakequant/core/ops/shape.h"
#include "fakequant/core/quantized.h"

namespace fq::detail {
namespace {

struct Stored {
  DType dtype;
  int zero_point, opset;
};

/// Returns the type of an activation's codes.
Stored stored_activation(const Grid& grid, Target target, const std::string& path) {
  if (!grid.format.is_integer()) {
    FQ_CHECK(grid.format == Format(FloatFormat{4, 3}), "export_onnx",
             "'{}' has codes of {}: of the float formats, activations are E4M3 in ONNX", path,
             to_string(grid.format));
    return {DType::f8_e4m3, 0, 19};
  }
  const IntFormat& f = grid.format.integer();
  if (target == Target::tensorrt) {
    FQ_CHECK(f.bits <= 8 && !f.is_unsigned, "export_onnx",
             "'{}' has codes of {}: the target tensorrt takes signed ones of up to 8 bits and E4M3; quantize "
             "for that target before calibrating",
             path, to_string(grid.format));
    return {DType::i8, 0, 13};
  }
  if (f.bits == 4) return {f.is_unsigned ? DType::u4 : DType::i4, 0, 21};
  if (f.bits > 8) return {f.is_unsigned ? DType::u16 : DType::i16, 0, 21};
  // ONNX Runtime's fast integer kernels take uint8 activations, so signed codes get an offset of 128.
  return {DType::u8, f.is_unsigned ? 0 : 128, 13};
}

/// Returns the full code range of the type.
IntFormat whole_range(const Stored& stored) {
  const DType type = stored.dtype;
  const bool from_zero = type == DType::u4 || type == DType::u8 || type == DType::u16;
  return {bit_width(type), from_zero && stored.zero_point == 0, false};
}

/// Returns zero points. An element type without conversion is filled by its bits.
Tensor zero_points(DType dtype, const Shape& shape, int value) {
  if (is_storage_only(dtype)) {
    FQ_CHECK(value == 0, "export_onnx", "codes of {} have no zero point", name(dtype));
    return Tensor::zeros(shape, dtype);
  }
  return Tensor::full(shape, value, dtype);
}

/// Returns the one kept axis, or -1 for one scale.
int scale_axis(const Grid& grid, int rank, const std::string& path) {
  if (grid.scale.numel() == 1 && grid.granularity.is_per_tensor()) return -1;
  const int axis = grid.granularity.single_axis(rank);
  FQ_CHECK(axis >= 0, "export_onnx",
           "'{}' has ranges {}: activations have one, or one an index of one axis in ONNX", path,
           to_string(grid.granularity));
  return axis;
}

/// Names of constants and attributes of a QuantizeLinear or DequantizeLinear node.
struct GridNames {
  std::string scale, zero_point;
  GraphBuilder::Attributes attributes;
};

GridNames add_constants(GraphBuilder& graph, const GridInput& input, const Stored& stored) {
  const int axis = scale_axis(input.grid, input.rank, input.path);
  graph.needs_opset(stored.opset);
  const std::string base = input.grid.name.empty() ? input.path : input.grid.name;
  const Tensor scales = input.grid.scale.reshape(axis < 0 ? Shape{} : Shape{input.grid.scale.numel()});
  GridNames out{
      graph.constant(base + ".scale", scales),
      graph.constant(base + ".zero_point", zero_points(stored.dtype, scales.shape(), stored.zero_point)),
      {}};
  if (axis >= 0) out.attributes.emplace_back("axis", std::int64_t{axis});
  return out;
}

/// Whether the calibrated range has only zeros, so that all codes are 0. Occurs after ReLUs whose outputs
/// were all zero in calibration.
bool has_no_range(const Grid& grid) {
  return grid.scale.numel() == 1 && grid.amax.to(DType::f32).item() <= least_amax;
}

/// Returns the lowest and highest allowed code.
int lowest_code(const GridInput& input) {
  if (has_no_range(input.grid)) return 0;
  const int lower = input.grid.format.integer().lower();
  return input.cut ? std::max(lower, 0) : lower;
}
int highest_code(const GridInput& input) {
  return has_no_range(input.grid) ? 0 : input.grid.format.integer().upper();
}

/// Whether the allowed codes are fewer than the codes of the type.
bool needs_clip(const GridInput& input, const Stored& stored) {
  if (!input.grid.format.is_integer()) return false;
  const IntFormat whole = whole_range(stored);
  return lowest_code(input) != whole.lower() || highest_code(input) != whole.upper();
}

/// Clips codes instead of floats, so that engines still fuse the quantizer with the operator before it. ONNX
/// supports it for 8 bits. TensorRT allows no node between Q and DQ.
std::string clip_codes(GraphBuilder& graph, const GridInput& input, const GridNames& grid,
                       const Stored& stored) {
  // The bounds have the type and the offset of the stored codes.
  const int highest = highest_code(input);
  const auto bound = [&](const char* name, int code) {
    return graph.constant(grid.zero_point + name, Tensor::full({}, code + stored.zero_point, stored.dtype));
  };
  const std::string q = graph.add("QuantizeLinear", input.codes + ".full",
                                  {input.floats, grid.scale, grid.zero_point}, grid.attributes);
  std::vector<std::string> inputs{q, bound(input.cut ? ".zero" : ".lowest", lowest_code(input))};
  if (highest != whole_range(stored).upper()) inputs.push_back(bound(".highest", highest));
  return graph.add("Clip", input.codes, std::move(inputs), {}, input.codes);
}

/// Returns code * scale for each scale, with trailing axes to broadcast against the input.
Tensor clip_bound(const GridInput& input, int code) {
  const int axis = scale_axis(input.grid, input.rank, input.path);
  const auto scales = input.grid.scale.to_vector<float>();
  Shape shape(axis < 0 ? 0 : static_cast<std::size_t>(input.rank - axis), 1);
  if (axis >= 0) shape[0] = static_cast<std::int64_t>(scales.size());
  Tensor out = Tensor::empty(shape);
  for (std::size_t i = 0; i < scales.size(); ++i)
    out.mutable_data<float>()[i] = scalar::mul_(static_cast<float>(code), scales[i]);
  return out;
}

/// Clips floats to the values of the lowest and highest code.
std::string clip_floats(GraphBuilder& graph, const GridInput& input, const GridNames& grid) {
  const int highest = highest_code(input);
  const std::string low = graph.constant(grid.scale + ".lowest", clip_bound(input, lowest_code(input)));
  const std::string high = graph.constant(grid.scale + ".highest", clip_bound(input, highest));
  // Clip takes one bound for all elements. Bounds per channel need Max and Min.
  if (grid.attributes.empty()) return graph.add("Clip", input.codes + ".cut", {input.floats, low, high});
  const std::string raised = graph.add("Max", input.codes + ".raised", {input.floats, low});
  return graph.add("Min", input.codes + ".cut", {raised, high});
}

std::string add_quantize(GraphBuilder& graph, const OnnxExportOptions& options, const GridInput& input,
                         const GridNames& grid, const Stored& stored) {
  const bool cut = needs_clip(input, stored);
  if (cut && bit_width(stored.dtype) == 8 && options.target != Target::tensorrt)
    return clip_codes(graph, input, grid, stored);
  const std::string floats = cut ? clip_floats(graph, input, grid) : input.floats;
  return graph.add("QuantizeLinear", input.codes, {floats, grid.scale, grid.zero_point}, grid.attributes,
                   input.codes);
}

}  // namespace

void check_activation_grid(const Grid& grid, int rank, Target target, const std::string& path) {
  (void)stored_activation(grid, target, path);
  (void)scale_axis(grid, rank, path);
}

std::string add_grid(GraphBuilder& graph, const OnnxExportOptions& options, const GridInput& input) {
  const Stored stored = stored_activation(input.grid, options.target, input.path);
  const GridNames grid = add_constants(graph, input, stored);
  const std::string q = add_quantize(graph, options, input, grid, stored);
  return graph.add("DequantizeLinear", input.codes + ".dequantize", {q, grid.scale, grid.zero_point},
                   grid.attributes, input.codes + ".floats");
}

std::string add_codes(GraphBuilder& graph, const OnnxExportOptions& options, const GridInput& input) {
  Stored stored = stored_activation(input.grid, options.target, input.path);
  // A graph output has the signed codes themselves. The offset exists only for kernels of ONNX Runtime.
  if (stored.zero_point != 0) stored = {DType::i8, 0, stored.opset};
  return add_quantize(graph, options, input, add_constants(graph, input, stored), stored);
}

namespace {

struct StoredType {
  DType dtype;
  int opset;
};

StoredType stored_type(const Format& format, bool emulate, bool integer_factor) {
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

/// Converts numbers that the type holds exactly.
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

Tensor transposed_matrix(const Tensor& matrix) { return ops::transpose(Variable(matrix), {1, 0}).tensor(); }

/// Scales in the form of DequantizeLinear: rank 0, a list along `axis`, or with `block` the rank of the
/// codes.
struct Scales {
  Tensor values;
  int axis = -1;
  std::int64_t block = 0;
};

/// Returns the axis that keeps blocks: the last one with blocks of several elements and more than one block.
int block_axis(const Shape& shape, const Shape& block) {
  int axis = static_cast<int>(shape.size()) - 1;
  for (int a = 0; a < static_cast<int>(shape.size()); ++a) {
    const auto i = static_cast<std::size_t>(a);
    if (block[i] > 1 && block[i] < shape[i]) axis = a;
  }
  return axis;
}

/// Repeats the scales along every axis except one.
Scales block_scales(const Grid& grid, const Shape& shape) {
  const Shape block = grid.granularity.block_shape(shape), counts = grid.granularity.scale_shape(shape);
  const int axis = block_axis(shape, block);
  Shape out = shape;
  const auto kept = static_cast<std::size_t>(axis);
  out[kept] = counts[kept];
  Scales scales{Tensor::empty(out), axis, std::min(block[kept], shape[kept])};
  const auto from = grid.scale.to_vector<float>();
  auto* to = scales.values.mutable_data<float>();
  Shape index(shape.size());
  // `index` counts through `out` like an odometer. j is the index of the block, row-major in `counts`.
  for (std::int64_t i = 0; i < numel(out); ++i) {
    std::int64_t j = 0;
    for (std::size_t a = 0; a < shape.size(); ++a)
      j = j * counts[a] + (a == kept ? index[a] : index[a] / block[a]);
    to[i] = from[static_cast<std::size_t>(j)];
    for (std::size_t a = shape.size(); a-- > 0 && ++index[a] == out[a];) index[a] = 0;
  }
  return scales;
}

Scales weight_scales(const Grid& grid, const Shape& shape, bool transposed) {
  if (grid.granularity.is_per_tensor()) return {grid.scale.reshape({})};
  const int axis = grid.granularity.single_axis(static_cast<int>(shape.size()));
  if (axis >= 0 && grid.scale_bits == 0)
    return {grid.scale.reshape({grid.scale.numel()}), transposed ? 1 - axis : axis};
  Scales scales = block_scales(grid, shape);
  if (transposed) scales = {transposed_matrix(scales.values), 1 - scales.axis, scales.block};
  return scales;
}

/// Adds the scales in their own type.
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
  const StoredType type = stored_type(codes.grid.format, options.emulate, form.integer_factor);
  const Scales scales = weight_scales(codes.grid, codes.shape(), form.transposed);
  graph.needs_opset(scales.block > 0 ? std::max(type.opset, 21) : type.opset);
  const Tensor values = code_values(codes).to(Layout::row_major);
  const std::string path = codes.grid.name.empty() ? name + ".quantizer" : codes.grid.name;
  GraphBuilder::Attributes attributes;
  if (scales.axis >= 0) attributes.emplace_back("axis", std::int64_t{scales.axis});
  if (scales.block > 0) attributes.emplace_back("block_size", scales.block);
  std::vector<std::string> inputs{
      graph.constant(name, stored(form.transposed ? transposed_matrix(values) : values, type.dtype)),
      add_scales(graph, options, path, codes.grid, scales, attributes)};
  if (scales.block == 0)
    inputs.push_back(graph.constant(path + ".zero_point", Tensor::zeros(scales.values.shape(), type.dtype)));
  return graph.add("DequantizeLinear", path, std::move(inputs), std::move(attributes), path + ".floats");
}

}  // namespace fq::detail
