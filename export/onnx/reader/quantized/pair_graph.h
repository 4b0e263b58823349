#pragma once

/// A graph of an ONNX file as its QuantizeLinear and DequantizeLinear see it: who makes a value, who reads
/// it, and what is fixed.

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "fakequant/export/onnx/model.h"
#include "fakequant/export/onnx/reader/quantized/stored_grid.h"

namespace fq::detail {

/// Whether a node is "QuantizeLinear" or "DequantizeLinear": ONNX's own, ONNX Runtime's older ones of 16
/// bits, and those by which ModelOpt writes E4M3 for TensorRT.
[[nodiscard]] bool is_pair_operator(const OnnxNode& node, std::string_view op);

/// It refers to the model, which outlives it.
class PairGraph {
 public:
  explicit PairGraph(const OnnxModel& model);

  /// The node that makes a value; null for inputs and initializers.
  [[nodiscard]] const OnnxNode* maker(const std::string& name) const;
  /// Undefined for what is computed of the network's input, or of more than a constant.
  [[nodiscard]] Tensor constant(const std::string& name) const;
  [[nodiscard]] FindConstant finder() const {
    return [this](const std::string& name) { return constant(name); };
  }
  [[nodiscard]] bool is_output(const std::string& name) const;

  /// Of a Clip of codes: the QuantizeLinear that gave them. Null for any other node.
  [[nodiscard]] const OnnxNode* clipped_quantizer(const OnnxNode& node) const;
  /// The type in which a QuantizeLinear stores codes.
  [[nodiscard]] DType type_of_codes(const OnnxNode& quantize) const;
  /// Throws ArgumentError naming the node unless its codes go to a DequantizeLinear, or to a Clip.
  void check_read_by_codes(const OnnxNode& quantize) const;

 private:
  const OnnxModel& model_;
  std::unordered_map<std::string, Tensor> constants_;
  std::unordered_map<std::string, const OnnxNode*> makers_;
  std::unordered_map<std::string, std::vector<const OnnxNode*>> readers_;
};

/// Replaces Mul(Cast(Add(ConvInteger(q, w, zero), bias)), Mul(scale of q, scale of w)), which the exporter
/// writes, by a Conv of three DequantizeLinear. Other nodes stay unchanged.
[[nodiscard]] OnnxModel with_convolution_pairs(const OnnxModel& model);

}  // namespace fq::detail
