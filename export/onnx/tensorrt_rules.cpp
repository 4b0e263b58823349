#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>

#include <fmt/format.h>

#include "fakequant/export/onnx/detail/element_type.h"
#include "fakequant/export/onnx/model.h"

namespace fq {
namespace {

constexpr int kLowestOpset = 9, kHighestOpset = 25;
constexpr std::int64_t kMostElements = std::numeric_limits<std::int32_t>::max();

std::int64_t integer(const OnnxNode& node, std::string_view key, std::int64_t otherwise) {
  const auto* value = node.attribute(key);
  const auto* found = value == nullptr ? nullptr : std::get_if<std::int64_t>(value);
  return found == nullptr ? otherwise : *found;
}

std::string_view type_name(DType dtype) {
  switch (dtype) {
    case DType::u8:
      return "UINT8";
    case DType::i32:
      return "INT32";
    case DType::i4:
      return "INT4";
    case DType::u4:
      return "UINT4";
    case DType::f8_e5m2:
      return "FP8 E5M2";
    default:
      return name(dtype);
  }
}

/// Returns the axis of the weight's output channels.
std::optional<std::int64_t> output_axis(const OnnxNode& layer, int rank) {
  if (layer.op == "Conv") return 0;
  if (layer.op == "ConvTranspose") return 1;
  if (layer.op == "MatMul") return rank - 1;
  if (layer.op == "Gemm") return integer(layer, "transB", 0) != 0 ? 0 : 1;
  return std::nullopt;
}

bool all_zero(const Tensor& tensor) {
  const auto* bytes = static_cast<const std::byte*>(tensor.raw());
  return std::all_of(bytes, bytes + tensor.nbytes(), [](std::byte b) { return b == std::byte{0}; });
}

bool all_positive(const Tensor& scale) {
  if (scale.dtype() == DType::f8_e4m3) {
    const auto* codes = static_cast<const unsigned char*>(scale.raw());
    return std::all_of(codes, codes + scale.numel(),
                       [](unsigned char code) { return code > 0 && code < 0x7f; });
  }
  if (is_storage_only(scale.dtype())) return true;  // E8M0 has positive values only
  const auto values = scale.to(DType::f32).to_vector<float>();
  return std::ranges::all_of(values, [](float value) { return value > 0 && std::isfinite(value); });
}

/// Whether `scale` has the sizes of `shape`, except for one of the last two axes, along which `block`
/// elements share a scale.
bool has_blocks(const Shape& shape, const Shape& scale, std::int64_t axis, std::int64_t block) {
  const auto rank = static_cast<std::int64_t>(shape.size());
  if (scale.size() != shape.size() || axis < std::max<std::int64_t>(0, rank - 2) || axis >= rank || block < 1)
    return false;
  Shape wanted = shape;
  auto& blocks = wanted[static_cast<std::size_t>(axis)];
  blocks = (blocks + block - 1) / block;
  return wanted == scale;
}

class Rules {
 public:
  explicit Rules(const OnnxModel& model) : model_(model) {
    for (const auto& constant : model.initializers) constants_.emplace(constant.name, &constant.value);
    for (const auto& node : model.nodes) {
      for (const auto& name : node.outputs) producers_.emplace(name, &node);
      // A node that reads a value twice counts as one reader.
      for (const auto& name : std::set<std::string_view>(node.inputs.begin(), node.inputs.end()))
        readers_.emplace(name, &node);
    }
  }

  std::vector<RuleBreak> run() {
    if (model_.opset < kLowestOpset || model_.opset > kHighestOpset)
      add(model_.graph_name,
          fmt::format("opset {}: TensorRT supports {} to {}", model_.opset, kLowestOpset, kHighestOpset));
    for (const auto& node : model_.nodes) {
      if (node.op == "QuantizeLinear" || node.op == "DequantizeLinear") check_quantizer(node);
      if (node.op == "Add") check_sum(node);
    }
    check_outputs();
    check_sizes();
    return std::move(breaks_);
  }

 private:
  void add(const std::string& node, std::string rule) { breaks_.push_back({node, std::move(rule)}); }
  void add(const OnnxNode& node, std::string rule) {
    add(node.name.empty() && !node.outputs.empty() ? node.outputs[0] : node.name, std::move(rule));
  }

  const Tensor* constant(const OnnxNode& node, std::size_t input) const {
    if (input >= node.inputs.size()) return nullptr;
    const auto found = constants_.find(node.inputs[input]);
    return found == constants_.end() ? nullptr : found->second;
  }
  const OnnxNode* producer(const OnnxNode& node, std::size_t input) const {
    if (input >= node.inputs.size()) return nullptr;
    const auto found = producers_.find(node.inputs[input]);
    return found == producers_.end() ? nullptr : found->second;
  }
  static bool is(const OnnxNode* node, std::string_view op) { return node != nullptr && node->op == op; }

  /// Returns the type of the codes that a node writes or reads: the type of its zero point or, without a zero
  /// point, of its input.
  DType code_type(const OnnxNode& node) const {
    if (const auto* zero = constant(node, 2)) return zero->dtype();
    if (node.op == "DequantizeLinear") {
      if (const auto* codes = constant(node, 0)) return codes->dtype();
      if (const auto* before = producer(node, 0); is(before, "QuantizeLinear")) return code_type(*before);
    }
    // From opset 21 the type may be an attribute. ONNX's default without a zero point is u8.
    const auto* attribute = node.attribute("output_dtype");
    const auto* number = attribute == nullptr ? nullptr : std::get_if<std::int64_t>(attribute);
    if (number == nullptr) return DType::u8;
    return detail::dtype_of_onnx(static_cast<int>(*number)).value_or(DType::u8);
  }

  /// Returns the constant that the node quantizes or dequantizes, or null for an activation.
  const Tensor* weight(const OnnxNode& node) const {
    if (const auto* value = constant(node, 0)) return value;
    // A weight may be stored as codes, or as floats that the graph quantizes.
    const auto* before = node.op == "DequantizeLinear" ? producer(node, 0) : nullptr;
    return is(before, "QuantizeLinear") ? constant(*before, 0) : nullptr;
  }

  void check_quantizer(const OnnxNode& node) {
    const DType type = code_type(node);
    const Tensor* value = weight(node);
    check_type(node, type, value != nullptr);
    const auto* zero = constant(node, 2);
    if (zero != nullptr && !all_zero(*zero))
      add(node, "a zero point is not 0: TensorRT supports symmetric codes only");
    if (zero == nullptr && node.inputs.size() > 2 && !node.inputs[2].empty())
      add(node, "the zero point is not a constant");
    check_scale(node, type, value);
  }

  void check_type(const OnnxNode& node, DType type, bool is_weight) {
    const bool known = type == DType::i8 || type == DType::f8_e4m3 || type == DType::f4_e2m1 ||
                       (type == DType::i4 && is_weight);
    if (known) return;
    if (type == DType::i32 && is_weight)
      return add(node, "an INT32 constant is dequantized: use a float bias");
    if (type == DType::i4)
      return add(node, "codes of an activation are INT4: TensorRT supports INT4 for constants only");
    add(node,
        fmt::format("codes are {}: TensorRT supports INT8, INT4, FP8 E4M3 and FP4 E2M1", type_name(type)));
  }

  void check_scale(const OnnxNode& node, DType type, const Tensor* value) {
    const auto* scale = constant(node, 1);
    if (scale == nullptr) {
      // Scales of NVFP4 have two levels: E4M3 numbers, dequantized by one float.
      const auto* levels = producer(node, 1);
      if (!is(levels, "DequantizeLinear") || constant(*levels, 0) == nullptr)
        add(node, "the scale is not a constant");
      return;
    }
    if (!all_positive(*scale)) add(node, "a scale is not positive");
    if (scale->numel() == 1 && scale->rank() <= 1) return;
    if (value == nullptr) return add(node, "an activation has several scales: TensorRT supports one");
    if (scale->rank() == 1) return check_channels(node, *scale, *value);
    const auto axis = integer(node, "axis", 1), block = integer(node, "block_size", 0);
    if (!has_blocks(value->shape(), scale->shape(), axis < 0 ? axis + value->rank() : axis, block))
      add(node, fmt::format("a scale of {} for a constant of {}: TensorRT supports blocks of block_size "
                            "along one of the last "
                            "two axes",
                            to_string(scale->shape()), to_string(value->shape())));
    else if (type == DType::i8)
      add(node, "INT8 in blocks: TensorRT supports one scale, or one per output channel");
  }

  void check_channels(const OnnxNode& node, const Tensor& scale, const Tensor& value) {
    auto axis = integer(node, "axis", 1);
    if (axis < 0) axis += value.rank();
    if (axis < 0 || axis >= value.rank() || value.dim(static_cast<int>(axis)) != scale.numel())
      return add(node, fmt::format("{} scales along axis {} of a constant of {}", scale.numel(), axis,
                                   to_string(value.shape())));
    // The layer that reads the weight decides which axis has the output channels.
    for (auto [at, end] = readers_.equal_range(node.outputs.at(0)); at != end; ++at) {
      const auto wanted = output_axis(*at->second, value.rank());
      if (wanted && *wanted != axis)
        add(node, fmt::format(
                      "scales along axis {}: TensorRT expects them along the output channels of {}, axis {}",
                      axis, at->second->op, *wanted));
    }
  }

  /// Whether a value is quantized later, directly or after a few elementwise operators.
  bool is_quantized(const std::string& value, int depth = 0) const {
    constexpr int kDeepest = 4;
    for (auto [at, end] = readers_.equal_range(value); at != end && depth < kDeepest; ++at) {
      const OnnxNode& reader = *at->second;
      if (reader.op == "QuantizeLinear") return true;
      const bool passes = reader.op == "Relu" || reader.op == "Clip" || reader.op == "Max";
      if (passes && !reader.outputs.empty() && is_quantized(reader.outputs[0], depth + 1)) return true;
    }
    return false;
  }

  void check_sum(const OnnxNode& node) {
    if (node.inputs.size() != 2 || node.outputs.empty() || constant(node, 0) || constant(node, 1)) return;
    // TensorRT fuses a residual addition into integers only if both branches are quantized.
    const bool a = is(producer(node, 0), "DequantizeLinear"), b = is(producer(node, 1), "DequantizeLinear");
    if (!(a && b) && is_quantized(node.outputs[0]))
      add(node,
          fmt::format("input {} of a sum that is quantized has no Q/DQ: TensorRT expects a pair at both",
                      a   ? "2"
                      : b ? "1"
                          : "1 and 2"));
  }

  void check_outputs() {
    for (const auto& output : model_.outputs) {
      const auto found = producers_.find(output.name);
      const bool codes = found != producers_.end() && found->second->op == "QuantizeLinear";
      if (codes || (output.kind == OnnxKind::tensor && !is_floating(output.dtype)))
        add(output.name, "a graph output is codes: TensorRT supports float outputs");
    }
  }

  void check_sizes() {
    for (const auto& entry : model_.initializers) check_size(entry.name, double(entry.value.numel()));
    for (const auto* values : {&model_.inputs, &model_.values, &model_.outputs})
      for (const auto& value : *values) {
        // A double cannot overflow. An open size counts as 1.
        double count = 1;
        for (const auto& axis : value.shape) count *= double(std::max<std::int64_t>(1, axis.size));
        check_size(value.name, count);
      }
  }

  void check_size(const std::string& name, double elements) {
    if (elements > double(kMostElements))
      add(name, fmt::format("{:.0f} elements: TensorRT supports {}", elements, kMostElements));
  }

  const OnnxModel& model_;
  std::unordered_map<std::string, const Tensor*> constants_;
  std::unordered_map<std::string, const OnnxNode*> producers_;
  std::unordered_multimap<std::string, const OnnxNode*> readers_;
  std::vector<RuleBreak> breaks_;
};

}  // namespace

std::vector<RuleBreak> tensorrt_rule_breaks(const OnnxModel& model) { return Rules(model).run(); }

}  // namespace fq
