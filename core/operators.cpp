#include "fakequant/core/operators.h"

#include <algorithm>

namespace fq {
namespace {

constexpr OperatorTraits product(std::string_view name, bool transposed = false) {
  return {.name = name, .is_product = true, .has_weight = true, .transposed = transposed};
}
constexpr OperatorTraits recurrent(std::string_view name) { return {.name = name, .is_recurrent = true}; }
constexpr OperatorTraits norm(std::string_view name) { return {.name = name, .is_norm = true}; }
constexpr OperatorTraits conversion(std::string_view name) { return {.name = name, .is_conversion = true}; }
/// Moves elements to other places.
constexpr OperatorTraits move(std::string_view name) {
  return {.name = name, .keeps_codes = true, .moves_values = true, .keeps_sign = true};
}
/// Averages or takes the largest of elements of a channel.
constexpr OperatorTraits pool(std::string_view name, bool largest) {
  return {.name = name,
          .keeps_codes = largest,
          .moves_values = largest,
          .keeps_sign = true,
          .is_homogeneous = true};
}
constexpr OperatorTraits comparison(std::string_view name) {
  return {.name = name, .is_non_negative = true, .keeps_sign = true};
}
constexpr OperatorTraits activation(std::string_view name, bool non_negative = false,
                                    bool homogeneous = false) {
  return {.name = name,
          .is_non_negative = non_negative,
          .keeps_sign = non_negative || homogeneous,
          .is_homogeneous = homogeneous,
          .per_element = true};
}

constexpr OperatorTraits kTable[] = {
    product("linear"),
    product("conv1d"),
    product("conv2d"),
    product("conv3d"),
    product("conv_transpose1d", true),
    product("conv_transpose2d", true),
    product("conv_transpose3d", true),
    {.name = "matmul", .is_product = true},
    {.name = "scaled_dot_product_attention"},
    {.name = "attention_weights", .is_non_negative = true},
    {.name = "rotary"},
    recurrent("lstm"),
    recurrent("gru"),
    recurrent("rnn"),
    norm("batch_norm"),
    norm("layer_norm"),
    conversion("quantize"),
    conversion("dequantize"),
    conversion("to_float"),
    conversion("to_f32"),
    activation("relu", true, true),
    activation("relu6", true),
    {.name = "leaky_relu", .is_homogeneous = true, .per_element = true},
    activation("clip"),
    activation("sigmoid", true),
    activation("tanh"),
    activation("hard_sigmoid", true),
    activation("hard_swish"),
    activation("silu"),
    activation("gelu"),
    activation("scale"),
    activation("neg"),
    activation("dropout", false, true),
    activation("channel_dropout", false, true),
    activation("drop_path", false, true),
    activation("drop_block2d", false, true),
    activation("alpha_dropout"),
    activation("elu"),
    activation("celu"),
    activation("selu"),
    activation("softplus", true),
    activation("mish"),
    activation("log_sigmoid"),
    activation("softsign"),
    activation("prelu"),
    activation("shift"),
    activation("power"),
    activation("reciprocal"),
    activation("exp", true),
    activation("log"),
    activation("sqrt", true),
    activation("abs", true, true),
    activation("erf"),
    activation("sin"),
    activation("cos"),
    activation("floor"),
    activation("ceil"),
    activation("round"),
    activation("sign"),
    {.name = "trunc", .keeps_sign = true, .per_element = true},
    {.name = "round_to", .keeps_sign = true, .per_element = true},
    {.name = "glu"},
    {.name = "softmax", .is_non_negative = true, .keeps_sign = true},
    {.name = "log_softmax"},
    {.name = "cross_entropy"},
    {.name = "mse_loss"},
    {.name = "add", .keeps_sign = true},
    {.name = "sub"},
    {.name = "multiply", .keeps_sign = true},
    {.name = "div", .keeps_sign = true},
    {.name = "pow", .keeps_sign = true},
    {.name = "minimum", .keeps_sign = true},
    {.name = "maximum", .keeps_sign = true},
    comparison("less"),
    comparison("less_equal"),
    comparison("greater"),
    comparison("greater_equal"),
    comparison("equal"),
    comparison("not_equal"),
    {.name = "where", .keeps_sign = true},
    {.name = "sum", .keeps_sign = true},
    {.name = "mean", .keeps_sign = true},
    {.name = "max", .keeps_sign = true},
    {.name = "min", .keeps_sign = true},
    {.name = "group_norm"},
    {.name = "instance_norm"},
    {.name = "rms_norm"},
    {.name = "local_response_norm", .keeps_sign = true},
    {.name = "adaptive_avg_pool2d", .keeps_sign = true},
    {.name = "adaptive_avg_pool3d", .keeps_sign = true},
    {.name = "resize_linear", .keeps_sign = true},
    {.name = "resize_cubic"},
    {.name = "concat", .moves_values = true, .keeps_sign = true},
    {.name = "embedding"},
    {.name = "input_part"},
    {.name = "pre_quant_scale"},
    pool("max_pool2d", true),
    pool("avg_pool2d", false),
    pool("global_avg_pool2d", false),
    pool("max_pool3d", true),
    pool("avg_pool3d", false),
    pool("global_avg_pool3d", false),
    move("reshape"),
    move("transpose"),
    move("slice"),
    move("index_select"),
    move("expand"),
    move("pixel_shuffle"),
    move("pixel_unshuffle"),
    move("resize_nearest"),
    {.name = "pad", .keeps_codes = true, .keeps_sign = true, .is_homogeneous = true},
    {.name = "pad_constant"},
    {.name = "flatten",
     .keeps_codes = true,
     .moves_values = true,
     .keeps_sign = true,
     .is_homogeneous = true},
};
constexpr OperatorTraits kUnknown{};

}  // namespace

const OperatorTraits& traits(std::string_view op) noexcept {
  const auto* found = std::ranges::find(kTable, op, &OperatorTraits::name);
  return found == std::end(kTable) ? kUnknown : *found;
}

std::span<const OperatorTraits> operator_table() noexcept { return kTable; }

}  // namespace fq
