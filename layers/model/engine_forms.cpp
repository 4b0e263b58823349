#include "fakequant/layers/model/float_operators.h"

namespace fq {
namespace {

constexpr std::string_view kCodes = "moves or compares codes";
constexpr std::string_view kProduct = "codes of bytes in, read by quantizers or as floats";
constexpr std::string_view kFactors = "codes of bytes on both sides, read by quantizers or as floats";
constexpr std::string_view kAdded =
    "two code tensors of one shape, read by quantizers alone; or floats that no inexact operator made";
constexpr std::string_view kSums = "the engine adds up dequantized floats";
constexpr std::string_view kNoKernel = "the engine has no integer kernel of it";
constexpr std::string_view kPool = "the engine averages dequantized floats";
constexpr std::string_view kRounds = "the engine multiplies floats, or codes by another formula";
constexpr std::string_view kTable = "the engine has its own exp, tanh or erf";
constexpr std::string_view kClip = "the engine rounds before or after it, as its kernels happen to fuse";
constexpr std::string_view kNorm = "the engine adds up floats in its own order";

}  // namespace

const std::vector<EngineForm>& engine_forms() {
  static const std::vector<EngineForm> all{
      {"linear", kProduct, kSums},
      {"conv1d", kProduct, kSums},
      {"conv2d", kProduct, kSums},
      {"conv3d", kProduct, kSums},
      {"conv_transpose1d", "", kNoKernel},
      {"conv_transpose2d", "", kNoKernel},
      {"conv_transpose3d", "", kNoKernel},
      {"add", kAdded, kSums},
      {"avg_pool2d", "codes of bytes in, read by quantizers alone", kPool},
      {"global_avg_pool2d", "codes of bytes in, read by quantizers alone", kPool},
      {"avg_pool3d", "codes of bytes in, read by quantizers alone", kPool},
      {"global_avg_pool3d", "codes of bytes in, read by quantizers alone", kPool},
      {"max_pool2d", kCodes, ""},
      {"max_pool3d", kCodes, ""},
      {"relu", kCodes, ""},
      {"concat", kCodes, ""},
      {"flatten", kCodes, ""},
      {"reshape", kCodes, ""},
      {"transpose", kCodes, ""},
      {"slice", kCodes, ""},
      {"index_select", kCodes, ""},
      {"expand", kCodes, ""},
      {"pad", kCodes, ""},
      {"pixel_shuffle", kCodes, ""},
      {"pixel_unshuffle", kCodes, ""},
      {"resize_nearest", kCodes, ""},
      {"embedding", kCodes, ""},
      {"input_part", kCodes, ""},
      {"batch_norm", "behind one linear or convolution layer, into which it is folded",
       "no layer before it takes it in, and the engine multiplies and adds floats"},
      {"relu6", "", kClip},
      {"clip", "", kClip},
      {"leaky_relu", "", kRounds},
      {"hard_sigmoid", "", kRounds},
      {"hard_swish", "", kRounds},
      {"multiply", "", kRounds},
      {"scale", "", kRounds},
      {"pre_quant_scale", "", kRounds},
      {"sub", "", kRounds},
      {"neg", "", kRounds},
      {"div", "", kRounds},
      {"shift", "", kRounds},
      {"abs", "", kRounds},
      {"minimum", "", kRounds},
      {"maximum", "", kRounds},
      {"where", "", kRounds},
      {"less", "", kRounds},
      {"less_equal", "", kRounds},
      {"greater", "", kRounds},
      {"greater_equal", "", kRounds},
      {"equal", "", kRounds},
      {"not_equal", "", kRounds},
      {"prelu", "", kRounds},
      {"pad_constant", "", kRounds},
      {"floor", "", kRounds},
      {"ceil", "", kRounds},
      {"trunc", "", kRounds},
      {"round_to", "", kRounds},
      {"round", "", kRounds},
      {"sign", "", kRounds},
      {"reciprocal", "", kRounds},
      {"rotary", "", kRounds},
      {"gelu", "", kTable},
      {"silu", "", kTable},
      {"sigmoid", "", kTable},
      {"tanh", "", kTable},
      {"softmax", "", kTable},
      {"log_softmax", "", kTable},
      {"attention_weights", "", kTable},
      {"elu", "", kTable},
      {"celu", "", kTable},
      {"selu", "", kTable},
      {"softplus", "", kTable},
      {"mish", "", kTable},
      {"log_sigmoid", "", kTable},
      {"softsign", "", kTable},
      {"glu", "", kTable},
      {"pow", "", kTable},
      {"power", "", kTable},
      {"exp", "", kTable},
      {"log", "", kTable},
      {"sqrt", "", kTable},
      {"erf", "", kTable},
      {"sin", "", kTable},
      {"cos", "", kTable},
      {"lstm", "integer weights, its input in codes with ranges of their own, one sample at a time", kNorm},
      {"layer_norm", "", kNorm},
      {"matmul", kFactors, kNorm},
      {"scaled_dot_product_attention", "", kNorm},
      {"gru", "", kNorm},
      {"rnn", "", kNorm},
      {"sum", "", kNorm},
      {"mean", "", kNorm},
      {"max", "", kNorm},
      {"min", "", kNorm},
      {"group_norm", "", kNorm},
      {"instance_norm", "", kNorm},
      {"rms_norm", "", kNorm},
      {"local_response_norm", "", kNorm},
      {"adaptive_avg_pool2d", "", kNorm},
      {"adaptive_avg_pool3d", "", kNorm},
      {"resize_linear", "", kNorm},
      {"resize_cubic", "", kNorm},
  };
  return all;
}

}  // namespace fq
