#include "fakequant/export/onnx/reader/operators.h"

#include <algorithm>
#include <unordered_map>

namespace fq::detail {
namespace onnx_ops {
namespace {

using Table = std::unordered_map<std::string, OpBuilder>;

const Table& onnx_table() {
  static const Table table = {{"Abs", function_of_one},
                              {"Add", add},
                              {"And", conjunction},
                              {"Attention", attention},
                              {"AveragePool", average_pool},
                              {"BatchNormalization", batch_norm},
                              {"Cast", cast},
                              {"CastLike", same},
                              {"Ceil", function_of_one},
                              {"Celu", celu},
                              {"Clip", clip},
                              {"Concat", concat},
                              {"ConstantOfShape", constant_of_shape},
                              {"Conv", conv},
                              {"ConvTranspose", conv_transpose},
                              {"Cos", function_of_one},
                              {"DepthToSpace", depth_to_space},
                              {"Cosh", hyperbolic},
                              {"CumSum", cumulative_sum},
                              {"Div", divide},
                              {"Dropout", dropout},
                              {"Einsum", einsum},
                              {"Elu", elu},
                              {"Equal", equal},
                              {"Erf", function_of_one},
                              {"Exp", function_of_one},
                              {"Expand", expand},
                              {"Flatten", flatten},
                              {"Floor", function_of_one},
                              {"GRU", recurrent},
                              {"Gather", gather},
                              {"GatherND", gather_nd},
                              {"Gelu", gelu},
                              {"Gemm", gemm},
                              {"GlobalAveragePool", global_average_pool},
                              {"GlobalMaxPool", global_max_pool},
                              {"Greater", greater},
                              {"GreaterOrEqual", greater_equal},
                              {"GroupNormalization", group_norm},
                              {"HardSigmoid", hard_sigmoid},
                              {"HardSwish", hard_swish},
                              {"Identity", same},
                              {"InstanceNormalization", instance_norm},
                              {"LRN", local_response_norm},
                              {"LSTM", recurrent},
                              {"LayerNormalization", layer_norm},
                              {"LeakyRelu", leaky_relu},
                              {"Less", less},
                              {"LessOrEqual", less_equal},
                              {"Log", function_of_one},
                              {"LogSoftmax", log_softmax},
                              {"MatMul", matmul},
                              {"Max", maximum},
                              {"MaxPool", max_pool},
                              {"Min", minimum},
                              {"Mish", function_of_one},
                              {"Mod", remainder},
                              {"Mul", multiply},
                              {"Neg", function_of_one},
                              {"Not", negation},
                              {"Or", disjunction},
                              {"PRelu", prelu},
                              {"Pad", pad},
                              {"Pow", power},
                              {"RMSNormalization", rms_norm},
                              {"RNN", recurrent},
                              {"Reciprocal", function_of_one},
                              {"ReduceL1", reduce_l1},
                              {"ReduceL2", reduce_l2},
                              {"ReduceLogSumExp", reduce_log_sum_exp},
                              {"ReduceMax", reduce_max},
                              {"ReduceMean", reduce_mean},
                              {"ReduceMin", reduce_min},
                              {"ReduceProd", reduce_product},
                              {"ReduceSum", reduce_sum},
                              {"ReduceSumSquare", reduce_sum_square},
                              {"Relu", function_of_one},
                              {"Reshape", reshape},
                              {"Resize", resize},
                              {"Round", function_of_one},
                              {"Selu", selu},
                              {"Shape", shape},
                              {"Sigmoid", function_of_one},
                              {"Sign", function_of_one},
                              {"Sin", function_of_one},
                              {"Sinh", hyperbolic},
                              {"Slice", slice},
                              {"Softmax", softmax},
                              {"Softplus", function_of_one},
                              {"Softsign", function_of_one},
                              {"SpaceToDepth", space_to_depth},
                              {"Split", split},
                              {"Sqrt", function_of_one},
                              {"Squeeze", squeeze},
                              {"Sub", subtract},
                              {"Sum", sum_of_all},
                              {"Tan", tangent},
                              {"Tanh", function_of_one},
                              {"Tile", tile},
                              {"Transpose", transpose},
                              {"Trilu", triangle},
                              {"Unsqueeze", unsqueeze},
                              {"Upsample", upsample},
                              {"Where", where}};
  return table;
}

const Table& pattern_table() {
  static const Table table = {{"Gelu", gelu},
                              {"Identity", same},
                              {"HardSwish", hard_swish},
                              {"LayerNormalization", layer_norm},
                              {"MatMul", matmul},
                              {"OnGrid", on_grid},
                              {"Silu", silu},
                              {"Strided", strided}};
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

std::vector<std::string> onnx_operators() {
  std::vector<std::string> out;
  for (const auto& [name, builder] : onnx_ops::onnx_table()) out.push_back(name);
  std::ranges::sort(out);
  return out;
}

}  // namespace fq::detail
