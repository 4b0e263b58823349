#include "fakequant/core/backend/cuda/attention/attention.h"
#include "fakequant/core/backend/cuda/codes/accumulators.h"
#include "fakequant/core/backend/cuda/codes/code_products.h"
#include "fakequant/core/backend/cuda/codes/codes.h"
#include "fakequant/core/backend/cuda/codes/packed.h"
#include "fakequant/core/backend/cuda/codes/range_gradients.h"
#include "fakequant/core/backend/cuda/codes/scales.h"
#include "fakequant/core/backend/cuda/elementwise/activations.h"
#include "fakequant/core/backend/cuda/elementwise/along_axis.h"
#include "fakequant/core/backend/cuda/elementwise/broadcast.h"
#include "fakequant/core/backend/cuda/elementwise/moves.h"
#include "fakequant/core/backend/cuda/elementwise/rows.h"
#include "fakequant/core/backend/cuda/elementwise/tensors.h"
#include "fakequant/core/backend/cuda/engine/bias.h"
#include "fakequant/core/backend/cuda/engine/products.h"
#include "fakequant/core/backend/cuda/engine/row_engines.h"
#include "fakequant/core/backend/cuda/norm/batch_norm.h"
#include "fakequant/core/backend/cuda/norm/layer_norm.h"
#include "fakequant/core/backend/cuda/norm/softmax.h"
#include "fakequant/core/backend/cuda/pool/pool.h"
#include "fakequant/core/backend/cuda/ranges/answers.h"
#include "fakequant/core/backend/cuda/ranges/count.h"
#include "fakequant/core/backend/cuda/ranges/ranges.h"
#include "fakequant/core/backend/cuda/ranges/row_sums.h"
#include "fakequant/core/backend/cuda/ranks/fixed_sums.h"
#include "fakequant/core/backend/cuda/recurrent/recurrent.h"
#include "fakequant/core/backend/cuda/runtime/runtime.h"
#include "fakequant/core/backend/cuda/update/updates.h"
#include "fakequant/core/backend/tables.h"

namespace fq::cuda {
namespace {

using fq::detail::Factor, fq::detail::Sharing;

void multiply_scaled(const Factor& a, const Factor& b, const Tensor& scale, const Tensor& bias, Tensor& y) {
  multiply(a, b, y, 1, Sharing::by_shape);
  scale_products(y, scale, bias);
}
void scale_and_sum(const Tensor& x, const Tensor& scales, Tensor& out, Tensor& db) {
  scale_to_bf16(x, scales, db.numel(), out);
  bias_gradient(x, db);
}

constinit const fq::detail::Kernels kernels{
    .allocate = allocate,
    .deallocate = deallocate,
    .memory_stats = memory_stats,
    .reset_peak_memory = reset_peak_memory,
    .release_cached_memory = release_cached_memory,
    .touched = touched,
    .fill_bytes = fill_bytes,
    .copy_bytes = copy,
    .wait_for = wait_for,
    .fill = fill,
    .convert = convert,
    .relayout = relayout,
    .copy_runs = copy_runs,
    .permute = permute,
    .pack_codes = pack_codes,
    .unpack_codes = unpack_codes,
    .activate = activate,
    .activate_backward = activate_backward,
    .combine = combine,
    .scale = scale,
    .reduce_to = reduce_to,
    .take = take,
    .mix = mix,
    .keep_mask = keep_mask,
    .keep = keep,
    .recurrent_step = recurrent_step,
    .recurrent_step_backward = recurrent_step_backward,
    .dynamic_codes = dynamic_codes,
    .dynamic_values = dynamic_values,
    .dynamic_sums = dynamic_sums,
    .ggml_operand = ggml_operand,
    .ggml_blocks = ggml_blocks,
    .ggml_product = ggml_product,
    .xnnpack_operand = xnnpack_operand,
    .xnnpack_rows = xnnpack_rows,
    .xnnpack_values = xnnpack_values,
    .xnnpack_block_product = xnnpack_block_product,
    .xnnpack_channel_sums = xnnpack_channel_sums,
    .check_whole = check_whole,
    .check_indices = check_indices,
    .gather_rows = gather_rows,
    .sum_rows = sum_rows,
    .one_hot = one_hot,
    .moments = moments,
    .normalize = normalize,
    .gradient_sums = gradient_sums,
    .normalize_backward = normalize_backward,
    .forward_numbers = forward_numbers,
    .backward_numbers = backward_numbers,
    .layer_norm = layer_norm,
    .layer_norm_backward = layer_norm_backward,
    .softmax = softmax,
    .softmax_backward = softmax_backward,
    .cross_entropy = cross_entropy,
    .cross_entropy_backward = cross_entropy_backward,
    .mse_loss = mse_loss,
    .mse_loss_backward = mse_loss_backward,
    .attention_weights = attention_weights,
    .attention_weights_backward = attention_weights_backward,
    .rotate = rotate,
    .max_pool = max_pool,
    .max_pool_backward = max_pool_backward,
    .avg_pool = avg_pool,
    .avg_pool_backward = avg_pool_backward,
    .sum_pixels = sum_pixels,
    .reorder_e4m3 = reorder_e4m3,
    .multiply = multiply,
    .conv_forward = conv_forward,
    .conv_backward_data = conv_backward_data,
    .conv_backward_weights = conv_backward_weights,
    .add_bias = add_bias,
    .bias_gradient = bias_gradient,
    .exact_gemm = exact_gemm,
    .exact_batch = exact_batch,
    .exact_conv = exact_conv,
    .code_factor_dtype = code_factor_dtype,
    .make_scales = make_scales,
    .open_ranges = open_ranges,
    .quantize = quantize,
    .decode = decode,
    .dequantize = dequantize,
    .apply_mask = apply_mask,
    .amax_gradient = amax_gradient,
    .rows_at_ends = rows_at_ends,
    .product_scale = product_scale,
    .scale_products = scale_products,
    .multiply_scaled = multiply_scaled,
    .scale_to_bf16 = scale_to_bf16,
    .scale_and_sum = scale_and_sum,
    .scale_weight_gradient = scale_weight_gradient,
    .accumulator_values = accumulator_values,
    .accumulator_codes = accumulator_codes,
    .bias_codes = bias_codes,
    .update_f32 = {sgd<float>, adam<float>, move_towards<float>, rule<float>},
    .update_f64 = {sgd<double>, adam<double>, move_towards<double>, rule<double>},
    .swap_contents = swap_contents,
    .sum_of_squares = sum_of_squares,
};

constinit const fq::detail::RangeKernels range_kernels{
    .amax = amax,
    .block_amax = block_amax,
    .range = range,
    .check_finite = check_finite,
    .use_ranges = use_ranges,
    .move_ranges = move_ranges,
    .grow_ranges = grow_ranges,
    .count = count,
    .add_magnitudes = add_magnitudes,
    .add_values = add_values,
    .add_errors = add_errors,
    .sweep_ranges = sweep_ranges,
    .answers = answers,
};

constinit const fq::detail::RankKernels rank_kernels{.add_fixed = add_fixed, .from_fixed = from_fixed};

}  // namespace

const fq::detail::Kernels* const table = &kernels;
const fq::detail::RangeKernels* const range_table = &range_kernels;
const fq::detail::RankKernels* const rank_table = &rank_kernels;

}  // namespace fq::cuda
