#include "fakequant/export/onnx/writer/grids.h"

#include <algorithm>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/core/numerics/detail/grid_formulas.h"

namespace fq::detail {
namespace {

struct Stored {
  DType dtype;
  int zero_point, opset;
};

/// The type of an activation's codes.
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
  return {DType::u8, f.is_unsigned ? 0 : 128, 13};
}

/// The codes that the type can hold.
IntFormat whole_range(const Stored& stored) {
  const DType type = stored.dtype;
  const bool from_zero = type == DType::u4 || type == DType::u8 || type == DType::u16;
  return {bit_width(type), from_zero && stored.zero_point == 0, false};
}

/// An element type's number, where DType cannot hold it by conversion.
Tensor zero_points(DType dtype, const Shape& shape, int value) {
  if (is_storage_only(dtype)) {
    FQ_CHECK(value == 0, "export_onnx", "codes of {} have no zero point", name(dtype));
    return Tensor::zeros(shape, dtype);
  }
  return Tensor::full(shape, value, dtype);
}

/// The one kept axis, -1 for one scale.
int scale_axis(const Grid& grid, int rank, const std::string& path) {
  if (grid.scale.numel() == 1 && grid.granularity.is_per_tensor()) return -1;
  const int axis = grid.granularity.single_axis(rank);
  FQ_CHECK(axis >= 0, "export_onnx",
           "'{}' has ranges {}: activations have one, or one an index of one axis in ONNX", path,
           to_string(grid.granularity));
  return axis;
}

/// The parameters of a Quantize- or DequantizeLinear node: names of constants, attributes.
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

/// Whether its range is that of zeros only, whose codes are 0 whatever the value: a quantizer behind ReLUs
/// that let nothing through while it was calibrated.
bool has_no_range(const Grid& grid) {
  return grid.scale.numel() == 1 && grid.amax.to(DType::f32).item() <= least_amax;
}

/// The outermost codes that may be.
int lowest_code(const GridInput& input) {
  if (has_no_range(input.grid)) return 0;
  const int lower = input.grid.format.integer().lower();
  return input.cut ? std::max(lower, 0) : lower;
}
int highest_code(const GridInput& input) {
  return has_no_range(input.grid) ? 0 : input.grid.format.integer().upper();
}

/// Whether saturation would give others.
bool is_cut(const GridInput& input, const Stored& stored) {
  if (!input.grid.format.is_integer()) return false;
  const IntFormat whole = whole_range(stored);
  return lowest_code(input) != whole.lower() || highest_code(input) != whole.upper();
}

/// On codes, so that what comes before is still fused with their quantizer; ONNX has this for 8 bits,
/// TensorRT takes nothing between Q and DQ.
std::string cut_codes(GraphBuilder& graph, const GridInput& input, const GridNames& grid,
                      const Stored& stored) {
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

/// code * scale, one for each scale, with as many axes behind them as the input has.
Tensor bounds_of(const GridInput& input, int code) {
  const int axis = scale_axis(input.grid, input.rank, input.path);
  const auto scales = input.grid.scale.to_vector<float>();
  Shape shape(axis < 0 ? 0 : static_cast<std::size_t>(input.rank - axis), 1);
  if (axis >= 0) shape[0] = static_cast<std::int64_t>(scales.size());
  Tensor out = Tensor::empty(shape);
  for (std::size_t i = 0; i < scales.size(); ++i)
    out.mutable_data<float>()[i] = scalar::mul_(static_cast<float>(code), scales[i]);
  return out;
}

/// The values that the outermost codes stand for round to them.
std::string cut_floats(GraphBuilder& graph, const GridInput& input, const GridNames& grid) {
  const int highest = highest_code(input);
  const std::string low = graph.constant(grid.scale + ".lowest", bounds_of(input, lowest_code(input)));
  const std::string high = graph.constant(grid.scale + ".highest", bounds_of(input, highest));
  if (grid.attributes.empty()) return graph.add("Clip", input.codes + ".cut", {input.floats, low, high});
  const std::string raised = graph.add("Max", input.codes + ".raised", {input.floats, low});
  return graph.add("Min", input.codes + ".cut", {raised, high});
}

std::string add_quantize(GraphBuilder& graph, const OnnxExportOptions& options, const GridInput& input,
                         const GridNames& grid, const Stored& stored) {
  const bool cut = is_cut(input, stored);
  if (cut && bit_width(stored.dtype) == 8 && options.target != Target::tensorrt)
    return cut_codes(graph, input, grid, stored);
  const std::string floats = cut ? cut_floats(graph, input, grid) : input.floats;
  return graph.add("QuantizeLinear", input.codes, {floats, grid.scale, grid.zero_point}, grid.attributes,
                   input.codes);
}

}  // namespace

std::string add_grid(GraphBuilder& graph, const OnnxExportOptions& options, const GridInput& input) {
  const Stored stored = stored_activation(input.grid, options.target, input.path);
  const GridNames grid = add_constants(graph, input, stored);
  const std::string q = add_quantize(graph, options, input, grid, stored);
  return graph.add("DequantizeLinear", input.codes + ".dequantize", {q, grid.scale, grid.zero_point},
                   grid.attributes, input.codes + ".floats");
}

std::string add_codes(GraphBuilder& graph, const OnnxExportOptions& options, const GridInput& input) {
  Stored stored = stored_activation(input.grid, options.target, input.path);
  if (stored.zero_point != 0) stored = {DType::i8, 0, stored.opset};
  return add_quantize(graph, options, input, add_constants(graph, input, stored), stored);
}

}  // namespace fq::detail
