#include "fakequant/core/backend/cpu/attention/attention.h"
#include "fakequant/core/backend/cpu/codes/code_products.h"
#include "fakequant/core/backend/cpu/codes/codes.h"
#include "fakequant/core/backend/cpu/codes/packed.h"
#include "fakequant/core/backend/cpu/codes/range_gradients.h"
#include "fakequant/core/backend/cpu/codes/scales.h"
#include "fakequant/core/backend/cpu/elementwise/activations.h"
#include "fakequant/core/backend/cpu/elementwise/along_axis.h"
#include "fakequant/core/backend/cpu/elementwise/broadcast.h"
#include "fakequant/core/backend/cpu/elementwise/convert.h"
#include "fakequant/core/backend/cpu/elementwise/dropout.h"
#include "fakequant/core/backend/cpu/elementwise/permute.h"
#include "fakequant/core/backend/cpu/elementwise/rows.h"
#include "fakequant/core/backend/cpu/elementwise/runs.h"
#include "fakequant/core/backend/cpu/engine/products.h"
#include "fakequant/core/backend/cpu/engines/row_engines.h"
#include "fakequant/core/backend/cpu/memory/host_memory.h"
#include "fakequant/core/backend/cpu/norm/batch_norm.h"
#include "fakequant/core/backend/cpu/norm/layer_norm.h"
#include "fakequant/core/backend/cpu/norm/softmax.h"
#include "fakequant/core/backend/cpu/pool/pool.h"
#include "fakequant/core/backend/cpu/ranges/answers.h"
#include "fakequant/core/backend/cpu/ranges/count.h"
#include "fakequant/core/backend/cpu/ranges/range_updates.h"
#include "fakequant/core/backend/cpu/ranges/row_sums.h"
#include "fakequant/core/backend/cpu/ranks/fixed_sums.h"
#include "fakequant/core/backend/cpu/recurrent/recurrent.h"
#include "fakequant/core/backend/cpu/update/updates.h"
#include "fakequant/core/backend/tables.h"
#include "fakequant/core/detail/convert.h"

namespace fq::cpu {
namespace {

void touched(const Storage&, const void*, bool) noexcept {}
void wait_for(Device) {}

}  // namespace

constinit const detail::Kernels table{
    .allocate = allocate,
    .deallocate = deallocate,
    .memory_stats = memory_stats,
    .reset_peak_memory = reset_peak_memory,
    .release_cached_memory = release_cached_memory,
    .touched = touched,
    .fill_bytes = fill_bytes,
    .copy_bytes = copy_bytes,
    .wait_for = wait_for,
    .fill = detail::fill,
    .convert = convert,
    .relayout = detail::relayout,
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

constinit const detail::RangeKernels range_table{
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

constinit const detail::RankKernels rank_table{.add_fixed = add_fixed, .from_fixed = from_fixed};

}  // namespace fq::cpu
