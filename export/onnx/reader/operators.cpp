#include "fakequant/export/onnx/reader/operators.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

namespace fq::detail {
namespace {

// Attributes of several operators. Opset 6 aligned operands by `axis`, which is rejected. Later opsets align
// the last axes.
constexpr char kLegacyBroadcast[] = "axis:i~@-6 broadcast:i@-6", kReduced[] = "data axes?@18-",
               kReduction[] = "axes:is@-17 keepdims:i noop_with_empty_axes:i@18-";

/// Attributes and inputs as in ONNX's own table up to `kLastOpset`, which the test onnx.schema compares.
/// Values that a builder does not read are limited here: "stash_type:i=1". Other components handle rows
/// without a builder: folding, patterns, pairs of quantizers or GraphImport.
std::vector<OperatorRow> other_rows() {
  using namespace onnx_ops;  // NOLINT: the builders
  return {
      {"", "Abs", wrapped_function, "X", ""},
      {"", "Add", add, "A B", kLegacyBroadcast},
      {"", "And", conjunction, "A B", kLegacyBroadcast},
      {"", "Attention", attention, "Q K V attn_mask? past_key? past_value? nonpad_kv_seqlen?@24-",
       "is_causal:i kv_num_heads:i left_window_size:i@25- q_num_heads:i qk_matmul_output_mode:i "
       "right_window_size:i@25- scale:f softcap:f softmax_precision:i=1,11",
       23},
      {"", "AveragePool", average_pool, "X",
       "auto_pad:s ceil_mode:i@10- count_include_pad:i@7- dilations:is@19- kernel_shape:is! pads:is "
       "strides:is"},
      {"", "BatchNormalization", batch_norm, "X scale B mean var",
       "epsilon:f is_test:i!=1@-6 momentum:f spatial:i=1@-8 training_mode:i@14-"},
      {"", "Cast", cast, "input", "round_mode:s=up@24- saturate:i=1@19- to:i!"},
      {"", "CastLike", nullptr, "input target_type", "round_mode:s=up@24- saturate:i=1@19-", 15},
      {"", "Clip", clip, "input min?@11- max?@11-", "max:f@-10 min:f@-10"},
      {"", "Concat", concat, "inputs*", "axis:i!"},
      {"", "Constant", nullptr, "",
       "sparse_value:x~@11- value:t!@-10 value:t@11- value_float:f@12- value_floats:fs@12- value_int:i@12- "
       "value_ints:is@12- "
       "value_string:s~@12- value_strings:ss~@12-"},
      {"", "ConstantOfShape", constant_of_shape, "input", "value:t", 9},
      {"", "Conv", conv, "X W B?", "auto_pad:s dilations:is group:i kernel_shape:is pads:is strides:is"},
      {"", "ConvInteger", nullptr, "x w x_zero_point? w_zero_point?",
       "auto_pad:s dilations:is group:i kernel_shape:is pads:is strides:is", 10},
      {"", "ConvTranspose", conv_transpose, "X W B?",
       "auto_pad:s dilations:is group:i kernel_shape:is output_padding:is output_shape:is pads:is "
       "strides:is"},
      {"", "Cosh", hyperbolic, "input", "", 9},
      {"", "CumSum", cumulative_sum, "x axis", "exclusive:i reverse:i", 11},
      {"", "DepthToSpace", depth_to_space, "input", "blocksize:i! mode:s@11-"},
      {"", "DequantizeLinear", nullptr, "x x_scale x_zero_point?",
       "axis:i@13- block_size:i@21- output_dtype:i=0,1@23-", 10},
      {"", "Div", divide, "A B", kLegacyBroadcast},
      {"", "Dropout", dropout, "data ratio?@12- training_mode?@12-", "is_test:i@-6 ratio:f@-11 seed:i@12-"},
      {"", "Einsum", einsum, "Inputs*", "equation:s!", 12},
      {"", "Expand", expand, "input shape", "", 8},
      {"", "Flatten", flatten, "input", "axis:i"},
      {"", "GRU", recurrent, "X W R B? sequence_lens? initial_h?",
       "activation_alpha:fs~ activation_beta:fs~ activations:ss clip:f direction:s hidden_size:i "
       "layout:i@14- linear_before_reset:i",
       7},
      {"", "Gather", gather, "data indices", "axis:i"},
      {"", "GatherND", gather_nd, "data indices", "batch_dims:i@12-", 11},
      {"", "Gemm", gemm, "A B C?", "alpha:f beta:f broadcast:i@-6 transA:i transB:i"},
      {"", "GlobalAveragePool", global_average_pool, "X", ""},
      {"", "GlobalMaxPool", global_max_pool, "X", ""},
      {"", "GroupNormalization", group_norm, "X scale bias", "epsilon:f num_groups:i! stash_type:i=1@21-",
       18},
      {"", "HardSigmoid", hard_sigmoid, "X", "alpha:f beta:f"},
      {"", "Identity", same, "input", ""},
      {"", "If", nullptr, "cond", "else_branch:g! then_branch:g!"},
      {"", "InstanceNormalization", instance_norm, "input scale B", "epsilon:f"},
      {"", "IsNaN", nullptr, "X", "", 9},
      {"", "LRN", local_response_norm, "X", "alpha:f beta:f bias:f size:i!"},
      {"", "LSTM", recurrent, "X W R B? sequence_lens? initial_h? initial_c? P?",
       "activation_alpha:fs~ activation_beta:fs~ activations:ss clip:f direction:s hidden_size:i "
       "input_forget:i layout:i@14-",
       7},
      {"", "LayerNormalization", layer_norm, "X Scale B?", "axis:i epsilon:f stash_type:i=1", 17},
      {"", "LogSoftmax", log_softmax, "input", "axis:i"},
      {"", "MatMul", matmul, "A B", ""},
      {"", "Max", maximum, "data_0*", ""},
      {"", "MaxPool", max_pool, "X",
       "auto_pad:s ceil_mode:i@10- dilations:is@10- kernel_shape:is! pads:is storage_order:i=0@8- "
       "strides:is"},
      {"", "Min", minimum, "data_0*", ""},
      {"", "Mod", remainder, "A B", "fmod:i", 10},
      {"", "Mul", multiply, "A B", kLegacyBroadcast},
      {"", "Neg", wrapped_function, "X", ""},
      {"", "Not", negation, "X", ""},
      {"", "Or", disjunction, "A B", kLegacyBroadcast},
      {"", "PRelu", prelu, "X slope", ""},
      {"", "Pad", pad, "data pads@11- constant_value?@11- axes?@18-", "mode:s pads:is!@-10 value:f@-10"},
      {"", "Pow", power, "X Y", kLegacyBroadcast},
      {"", "QuantizeLinear", nullptr, "x y_scale y_zero_point?",
       "axis:i@13- block_size:i@21- output_dtype:i@21- precision:i=0,1@23- saturate:i=1@19-", 10},
      {"", "RMSNormalization", rms_norm, "X scale", "axis:i epsilon:f stash_type:i=1", 23},
      {"", "RNN", recurrent, "X W R B? sequence_lens? initial_h?",
       "activation_alpha:fs~ activation_beta:fs~ activations:ss clip:f direction:s hidden_size:i "
       "layout:i@14-",
       7},
      {"", "Range", nullptr, "start limit delta", "stash_type:i=1@27-", 11},
      {"", "ReduceL1", reduce_l1, kReduced, kReduction},
      {"", "ReduceL2", reduce_l2, kReduced, kReduction},
      {"", "ReduceLogSum", reduce_log_sum, kReduced, kReduction},
      {"", "ReduceLogSumExp", reduce_log_sum_exp, kReduced, kReduction},
      {"", "ReduceMax", reduce_max, kReduced, kReduction},
      {"", "ReduceMean", reduce_mean, kReduced, kReduction},
      {"", "ReduceMin", reduce_min, kReduced, kReduction},
      {"", "ReduceProd", reduce_product, kReduced, kReduction},
      {"", "ReduceSum", reduce_sum, "data axes?@13-", "axes:is@-12 keepdims:i noop_with_empty_axes:i@13-"},
      {"", "ReduceSumSquare", reduce_sum_square, kReduced, kReduction},
      {"", "Reshape", reshape, "data shape", "allowzero:i@14-"},
      {"", "Resize", resize, "X roi?@11- scales? sizes?@11-",
       "antialias:i@18- axes:is@18- coordinate_transformation_mode:s@11- cubic_coeff_a:f@11- "
       "exclude_outside:i@11- extrapolation_value:f@11- keep_aspect_ratio_policy:s@18- mode:s "
       "nearest_mode:s@11-",
       10},
      {"", "ScatterND", nullptr, "data indices updates", "reduction:s@16-", 11},
      {"", "Selu", selu, "X", "alpha:f gamma:f"},
      {"", "Shape", shape, "data", "end:i@15- start:i@15-"},
      {"", "Sinh", hyperbolic, "input", "", 9},
      {"", "Size", nullptr, "data", ""},
      {"", "Slice", slice, "data starts@10- ends@10- axes?@10- steps?@10-",
       "axes:is@-9 ends:is!@-9 starts:is!@-9"},
      {"", "Softmax", softmax, "input", "axis:i"},
      {"", "SpaceToDepth", space_to_depth, "input", "blocksize:i! mode:s@28-"},
      {"", "Split", onnx_ops::split, "input split?@13-", "axis:i num_outputs:i@18- split:is@-12"},
      {"", "Squeeze", squeeze, "data axes?@13-", "axes:is@-12"},
      {"", "Sub", subtract, "A B", kLegacyBroadcast},
      {"", "Sum", sum_of_all, "data_0*", ""},
      {"", "Tan", tangent, "input", "", 7},
      {"", "Tile", tile, "input repeats", ""},
      {"", "Transpose", transpose, "data", "perm:is"},
      {"", "Trilu", triangle, "input k?", "upper:i", 14},
      {"", "Unsqueeze", unsqueeze, "data axes@13-", "axes:is!@-12"},
      {"", "Upsample", upsample, "X scales", "mode:s", 9, 9},
      {"", "Where", where, "condition X Y", "", 9},
      {"", "Xor", exclusive_or, "A B", kLegacyBroadcast},

      // Read in pairs. Optimisers and ModelOpt write them for 16-bit and E4M3 codes.
      {"com.microsoft", "DequantizeLinear", nullptr, "x x_scale x_zero_point?", "axis:i"},
      {"com.microsoft", "QuantizeLinear", nullptr, "x y_scale y_zero_point?", "axis:i"},
      {"trt", "TRT_FP8DequantizeLinear", nullptr, "x x_scale x_zero_point?", "axis:i"},
      {"trt", "TRT_FP8QuantizeLinear", nullptr, "x y_scale y_zero_point?", "axis:i"},

      // Nodes that the reader itself inserts.
      {kPatternDomain, "Identity", same, "input", ""},
      {kPatternDomain, "LayerNormalization", layer_norm, "X Scale? B?", "axes:is epsilon:f"},
      {kPatternDomain, "MatMul", matmul, "A B C?", ""},
      {kPatternDomain, "OnGrid", grid_mark, "X", "axis:i index:i! origin:s scales:i"},
      {kPatternDomain, "Strided", strided, "X", "shape:is!"},
  };
}

/// Returns the attributes of a plain function. Up to opset 6, comparisons had their own broadcasting rule.
std::string plain_attributes(const OperatorSchema& row) {
  if (row.inputs == 2) return row.onnx_opset == kFirstOpset ? kLegacyBroadcast : "";
  std::string out;
  for (const auto& option : row.options())
    if (!option.onnx.empty())
      out += fmt::format("{}{}:{}", out.empty() ? "" : " ", option.onnx,
                         option.is_choice()  ? 's'
                         : option.is_integer ? 'i'
                                             : 'f');
  return out;
}

}  // namespace

const std::vector<OperatorRow>& operator_table() {
  static const std::vector<OperatorRow> table = [] {
    std::vector<OperatorRow> rows = other_rows();
    std::set<std::string_view> known;
    for (const auto& row : rows)
      // A row above overrides the plain function of the same operator.
      if (row.domain.empty()) known.insert(row.name);
    for (const OperatorSchema& row : fq::operator_table()) {
      if (row.run == nullptr) continue;
      // A pattern inserts nodes with the name of the function, for functions that are no ONNX operator of the
      // opset.
      if (row.inputs == 1)
        rows.push_back({kPatternDomain, row.name, onnx_ops::recognised_function, "X", plain_attributes(row)});
      if (row.onnx.empty() || !known.insert(row.onnx).second) continue;
      rows.push_back({"", row.onnx, onnx_ops::plain_function,
                      row.inputs == 1 ? std::string(row.onnx_input) : "A B", plain_attributes(row),
                      row.onnx_opset});
    }
    return rows;
  }();
  return table;
}

const OperatorSchema* plain_row(std::string_view onnx) {
  const auto rows = fq::operator_table();
  const auto found = std::ranges::find_if(
      rows, [&](const OperatorSchema& row) { return row.onnx == onnx && row.run != nullptr; });
  return found == rows.end() ? nullptr : &*found;
}

const Operator* find_operator(const OnnxNode& node) {
  // Schemas are parsed once. Keys refer to the static table.
  using Key = std::pair<std::string_view, std::string_view>;
  static const auto all = [] {
    std::map<Key, Operator> out;
    for (const auto& row : operator_table())
      out.emplace(Key(row.domain, row.name), Operator{row, OnnxSchema(row.inputs, row.attributes)});
    return out;
  }();
  const auto found = all.find(Key(node.domain, node.op));
  return found == all.end() ? nullptr : &found->second;
}

OpBuilder find_op_builder(const OnnxNode& node) {
  const Operator* found = find_operator(node);
  return found == nullptr ? nullptr : found->row.build;
}

}  // namespace fq::detail
