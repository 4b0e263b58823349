#include "fakequant/export/onnx/reader/operators.h"

#include <unordered_map>

namespace fq::detail {
namespace onnx_ops {
namespace {

using Table = std::unordered_map<std::string, OpBuilder>;

const Table& onnx_table() {
  static const Table table = {{"Add", add},
                              {"AveragePool", average_pool},
                              {"BatchNormalization", batch_norm},
                              {"Cast", cast},
                              {"CastLike", same},
                              {"Clip", clip},
                              {"Concat", concat},
                              {"Conv", conv},
                              {"ConvTranspose", conv_transpose},
                              {"Dropout", dropout},
                              {"Flatten", flatten},
                              {"Gather", embedding},
                              {"Gelu", gelu},
                              {"Gemm", gemm},
                              {"GlobalAveragePool", global_average_pool},
                              {"GlobalMaxPool", global_max_pool},
                              {"HardSigmoid", hard_sigmoid},
                              {"HardSwish", hard_swish},
                              {"Identity", same},
                              {"LayerNormalization", layer_norm},
                              {"LeakyRelu", leaky_relu},
                              {"LogSoftmax", log_softmax},
                              {"MatMul", matmul},
                              {"MaxPool", max_pool},
                              {"Mul", multiply},
                              {"PRelu", prelu},
                              {"ReduceMean", reduce_mean},
                              {"Relu", relu},
                              {"Reshape", reshape},
                              {"Shape", shape},
                              {"Sigmoid", sigmoid},
                              {"Softmax", softmax},
                              {"Squeeze", squeeze},
                              {"Tanh", tanh},
                              {"Transpose", transpose},
                              {"Unsqueeze", unsqueeze}};
  return table;
}

const Table& pattern_table() {
  static const Table table = {{"Gelu", gelu},
                              {"HardSwish", hard_swish},
                              {"LayerNormalization", layer_norm},
                              {"MatMul", matmul},
                              {"Silu", silu}};
  return table;
}

}  // namespace
}  // namespace onnx_ops

OpBuilder find_op_builder(const OnnxNode& node) {
  const bool pattern = node.domain == kPatternDomain;
  if (!pattern && !node.domain.empty()) return nullptr;
  const auto& table = pattern ? onnx_ops::pattern_table() : onnx_ops::onnx_table();
  const auto found = table.find(node.op);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace fq::detail
