#include "fakequant/export/onnx/export/grids.h"

#include <optional>

#include "fakequant/core/check.h"

namespace fq::detail {
namespace {

struct Stored {
  DType dtype;
  int zero_point, opset;
};

/// The type of an activation's codes.
Stored stored_activation(const QuantSpec& spec, Target target, const std::string& path) {
  if (!spec.format.is_integer()) {
    FQ_CHECK(spec.format == Format(FloatFormat{4, 3}), "export_onnx",
             "'{}' has codes of {}: of the float formats, activations are E4M3 in ONNX", path,
             to_string(spec.format));
    return {DType::f8_e4m3, 0, 19};
  }
  const IntFormat& f = spec.format.integer();
  if (target == Target::tensorrt) {
    FQ_CHECK(f.bits == 8 && !f.is_unsigned, "export_onnx",
             "'{}' has codes of {}: the target tensorrt takes int8 and E4M3; quantize for that target before "
             "calibrating",
             path, to_string(spec.format));
    return {DType::i8, 0, 13};
  }
  FQ_CHECK(f.bits == 4 || f.bits == 8 || f.bits == 16, "export_onnx",
           "'{}' has codes of {}: activations of 4, 8 and 16 bits and E4M3 have types in ONNX", path,
           to_string(spec.format));
  if (f.bits == 4) return {f.is_unsigned ? DType::u4 : DType::i4, 0, 21};
  if (f.bits == 16) return {f.is_unsigned ? DType::u16 : DType::i16, 0, 21};
  return {DType::u8, f.is_unsigned ? 0 : 128, 13};
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
int scale_axis(const QuantSpec& spec, int rank, const std::string& path) {
  if (spec.scale.numel() == 1 && spec.granularity.is_per_tensor()) return -1;
  const int axis = spec.granularity.single_axis(rank);
  FQ_CHECK(axis >= 0, "export_onnx",
           "'{}' has ranges {}: activations have one, or one an index of one axis in ONNX", path,
           to_string(spec.granularity));
  return axis;
}

/// The parameters of a Quantize- or DequantizeLinear node: names of constants, attributes.
struct GridNames {
  std::string scale, zero_point;
  GraphBuilder::Attributes attributes;
};

GridNames add_constants(GraphBuilder& graph, const GridInput& input, const Stored& stored) {
  const int axis = scale_axis(input.spec, input.rank, input.path);
  graph.needs_opset(stored.opset);
  const std::string base = input.spec.name.empty() ? input.path : input.spec.name;
  const Tensor scales = input.spec.scale.reshape(axis < 0 ? Shape{} : Shape{input.spec.scale.numel()});
  GridNames out{
      graph.constant(base + ".scale", scales),
      graph.constant(base + ".zero_point", zero_points(stored.dtype, scales.shape(), stored.zero_point)),
      {}};
  if (axis >= 0) out.attributes.emplace_back("axis", std::int64_t{axis});
  return out;
}

/// The lowest code that may be, where saturation would give lower ones.
std::optional<float> lowest_code(const GridInput& input) {
  if (!input.spec.format.is_integer() || input.spec.format.integer().is_unsigned) return {};
  if (input.cut) return 0.0F;
  if (input.spec.format.integer().narrow_range) return input.spec.format.lower();
  return {};
}

/// Codes below the lowest are cut off behind the quantizer, on codes, so that what comes before is still
/// fused with it.
std::string add_quantize(GraphBuilder& graph, const GridInput& input, const GridNames& grid,
                         const Stored& stored) {
  const auto lowest = lowest_code(input);
  if (!lowest)
    return graph.add("QuantizeLinear", input.codes, {input.floats, grid.scale, grid.zero_point},
                     grid.attributes, input.codes);
  const std::string bound =
      graph.constant(grid.zero_point + (input.cut ? ".zero" : ".lowest"),
                     Tensor::full({}, *lowest + static_cast<float>(stored.zero_point), stored.dtype));
  const std::string q = graph.add("QuantizeLinear", input.codes + ".full",
                                  {input.floats, grid.scale, grid.zero_point}, grid.attributes);
  return graph.add("Clip", input.codes, {q, bound}, {}, input.codes);
}

}  // namespace

std::string add_grid(GraphBuilder& graph, const OnnxExportOptions& options, const GridInput& input) {
  const Stored stored = stored_activation(input.spec, options.target, input.path);
  const GridNames grid = add_constants(graph, input, stored);
  const std::string q = add_quantize(graph, input, grid, stored);
  return graph.add("DequantizeLinear", input.codes + ".dequantize", {q, grid.scale, grid.zero_point},
                   grid.attributes, input.codes + ".floats");
}

std::string add_codes(GraphBuilder& graph, const OnnxExportOptions& options, const GridInput& input) {
  Stored stored = stored_activation(input.spec, options.target, input.path);
  if (stored.zero_point != 0) stored = {DType::i8, 0, stored.opset};
  return add_quantize(graph, input, add_constants(graph, input, stored), stored);
}

}  // namespace fq::detail
