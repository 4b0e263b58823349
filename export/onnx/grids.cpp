#include "fakequant/export/onnx/grids.h"

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

GridNames add_constants(GraphBuilder& graph, const std::string& base, const Tensor& scale, DType dtype,
                        int zero_point, int axis) {
  const Tensor scales = scale.reshape(axis < 0 ? Shape{} : Shape{scale.numel()});
  GridNames out{graph.constant(base + ".scale", scales),
                graph.constant(base + ".zero_point", zero_points(dtype, scales.shape(), zero_point)),
                {}};
  if (axis >= 0) out.attributes.emplace_back("axis", std::int64_t{axis});
  return out;
}

/// The lowest code of a narrow range is one that the engine's own saturation would give.
std::string without_lowest(GraphBuilder& graph, const std::string& floats, const QuantSpec& spec,
                           const std::string& path) {
  if (!spec.format.is_integer() || !spec.format.integer().narrow_range || spec.format.integer().is_unsigned)
    return floats;
  FQ_CHECK(spec.scale.numel() == 1, "export_onnx",
           "'{}' leaves out the lowest code and has {} ranges: give it one, or the "
           "full range",
           path, spec.scale.numel());
  const std::string low =
      graph.constant(spec.name + ".lowest", Tensor::scalar(spec.scale.item() * spec.format.lower()));
  return graph.add("Max", path + ".clip", {floats, low});
}

}  // namespace

std::string add_grid(GraphBuilder& graph, const OnnxExportOptions& options, const std::string& floats,
                     int rank, const QuantSpec& spec, const std::string& path, const std::string& codes) {
  const Stored stored = stored_activation(spec, options.target, path);
  const int axis = scale_axis(spec, rank, path);
  graph.needs_opset(stored.opset);
  const std::string base = spec.name.empty() ? path : spec.name;
  const auto grid = add_constants(graph, base, spec.scale, stored.dtype, stored.zero_point, axis);
  const std::string input = without_lowest(graph, floats, spec, path);
  const std::string q =
      graph.add("QuantizeLinear", codes, {input, grid.scale, grid.zero_point}, grid.attributes, codes);
  return graph.add("DequantizeLinear", codes + ".dequantize", {q, grid.scale, grid.zero_point},
                   grid.attributes, codes + ".floats");
}

}  // namespace fq::detail
