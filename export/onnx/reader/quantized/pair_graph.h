#pragma once

/// An ONNX graph with lookups for QuantizeLinear and DequantizeLinear: producers, readers and constants of
/// values.

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "fakequant/export/onnx/model.h"
#include "fakequant/export/onnx/reader/quantized/stored_grid.h"

namespace fq::detail {

/// Whether a node is "QuantizeLinear" or "DequantizeLinear". Includes the operators of ONNX, ONNX Runtime's
/// older 16-bit operators, and the operators with which ModelOpt writes E4M3 for TensorRT.
[[nodiscard]] bool is_pair_operator(const OnnxNode& node, std::string_view op);

/// Keeps a reference to the model.
class PairGraph {
 public:
  explicit PairGraph(const OnnxModel& model);

  /// Returns the node that computes a value, or null for inputs and initializers.
  [[nodiscard]] const OnnxNode* maker(const std::string& name) const;
  /// Returns a constant. Undefined for values that depend on the network's input or on more than one
  /// constant.
  [[nodiscard]] Tensor constant(const std::string& name) const;
  [[nodiscard]] FindConstant finder() const {
    return [this](const std::string& name) { return constant(name); };
  }
  [[nodiscard]] bool is_output(const std::string& name) const;

  /// Returns the QuantizeLinear before a Clip of codes, or null for other nodes.
  [[nodiscard]] const OnnxNode* clipped_quantizer(const OnnxNode& node) const;
  /// Returns the type in which a QuantizeLinear stores codes.
  [[nodiscard]] DType type_of_codes(const OnnxNode& quantize) const;
  /// Throws ArgumentError that names the node unless a DequantizeLinear or a Clip reads its codes.
  void check_read_by_codes(const OnnxNode& quantize) const;

 private:
  const OnnxModel& model_;
  std::unordered_map<std::string, Tensor> constants_;
  std::unordered_map<std::string, const OnnxNode*> makers_;
  std::unordered_map<std::string, std::vector<const OnnxNode*>> readers_;
};

/// Replaces Mul(Cast(Add(ConvInteger(q, w, zero), bias)), Mul(scale of q, scale of w)), the exporter's form,
/// by a Conv of three DequantizeLinear. Other nodes stay unchanged.
[[nodiscard]] OnnxModel pair_convolutions(const OnnxModel& model);

}  // namespace fq::detail
