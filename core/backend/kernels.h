#pragma once

/// The kernels that every device has, each signature once. A backend fills a table (cpu/table.cpp,
/// cuda/table.cpp); `run` is the only switch on the device. What a kernel computes, and of which shapes and
/// types, its header in cpu/ says; the table of CUDA has the same bits.

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "fakequant/core/accumulator.h"
#include "fakequant/core/backend/attention_rows.h"
#include "fakequant/core/backend/axis_mix.h"
#include "fakequant/core/backend/batch_norm_numbers.h"
#include "fakequant/core/backend/dropout_blocks.h"
#include "fakequant/core/backend/label_rule.h"
#include "fakequant/core/backend/product_shapes.h"
#include "fakequant/core/backend/ranged_values.h"
#include "fakequant/core/backend/recurrent_call.h"
#include "fakequant/core/backend/updates.h"
#include "fakequant/core/blocks/detail/pool_windows.h"
#include "fakequant/core/blocks/detail/strided_bits.h"
#include "fakequant/core/detail/allocator.h"
#include "fakequant/core/numerics/detail/arithmetic.h"
#include "fakequant/core/numerics/detail/grid_formulas.h"
#include "fakequant/core/quantized.h"
#include "fakequant/core/tensor.h"

namespace fq::detail {

struct Activation;
struct EngineOperand;
enum class GgmlRounding : unsigned char;

/// A tensor to be quantized to out.codes and, if defined, out.mask. A NaN throws NumericError with
/// `nan_text`: at once, or on a GPU when a value is next read back.
struct QuantizeCall {
  const Tensor& x;  ///< f32, in the layout of the codes
  QuantizedTensor& out;
  std::string nan_text;
};

/// The updates of optimizers, of parameters of one type.
template <class T>
struct UpdateKernels {
  void (*sgd)(std::span<const SgdArrays<T>> arrays, const SgdFactors<T>& factors, Device device);
  void (*adam)(std::span<const AdamArrays<T>> arrays, const AdamFactors<T>& factors, Device device);
  void (*move_towards)(std::span<const PairArrays<T>> arrays, T rate, Device device);
  void (*rule)(const AnyRuleList<T>& arrays, Device device);
};

struct Kernels {
  // memory: bytes of the device
  void* (*allocate)(std::size_t bytes, Device device);
  void (*deallocate)(void* pointer, std::size_t bytes, Device device) noexcept;
  MemoryStats (*memory_stats)(Device device) noexcept;
  void (*reset_peak_memory)(Device device) noexcept;
  void (*release_cached_memory)() noexcept;
  /// Somebody has asked for the address of a storage, to read or to write to it.
  void (*touched)(const Storage& storage, const void* address, bool written) noexcept;
  void (*fill_bytes)(void* pointer, int value, std::size_t bytes, Device device);
  /// Between two devices of which one is this table's; the other is the host or of the same kind.
  void (*copy_bytes)(void* to, Device to_device, const void* from, Device from_device, std::size_t bytes);
  void (*wait_for)(Device device);

  // tensors
  void (*fill)(Tensor& out, double value);
  void (*convert)(const Tensor& in, Tensor& out);
  void (*relayout)(const Tensor& in, Tensor& out);
  void (*copy_runs)(const StridedBits& copy, const void* in, void* out, Device device);
  void (*permute)(const Tensor& x, const std::vector<int>& axes, Tensor& y);
  void (*pack_codes)(const Tensor& codes, Tensor& out);
  void (*unpack_codes)(const Tensor& packed, bool is_signed, Tensor& out);

  // elementwise
  void (*activate)(const Tensor& x, const Activation& f, Tensor& y);
  void (*activate_backward)(const Tensor& dy, const Tensor& saved, const Activation& f, Tensor& dx);
  void (*combine)(const Tensor& a, const Tensor& b, const Arithmetic& f, Tensor& y);
  void (*scale)(const Tensor& x, double factor, Tensor& y);
  void (*reduce_to)(const Tensor& x, const Reduction& reduction, Tensor& out);
  void (*take)(const Tensor& x, int axis, const std::vector<std::int64_t>& from, double fill, Tensor& y);
  void (*mix)(const Tensor& x, int axis, const AxisMix& mix, Tensor& y);
  void (*keep_mask)(const DropoutBlocks& blocks, Tensor& mask);
  void (*keep)(const Tensor& x, const Tensor& mask, double scale, Tensor& y);

  // recurrent layers
  void (*recurrent_step)(RecurrentStep& step);
  void (*recurrent_step_backward)(RecurrentStepBackward& step);
  void (*dynamic_codes)(const Tensor& x, Tensor& codes, Tensor& grids, const std::string& nan_text);
  void (*dynamic_values)(const Tensor& codes, const Tensor& grids, Tensor& out);
  void (*dynamic_sums)(const Tensor& sums, const Tensor& weights, const Tensor& grids, const Tensor& w_scale,
                       Tensor& out);

  // engines that round rows as they run: backend/cpu/engines/row_engines.h
  void (*ggml_operand)(const Tensor& codes, const Tensor& scales, bool in_lanes, EngineOperand& out);
  void (*ggml_blocks)(const Tensor& x, const Tensor& extreme_codes, GgmlRounding rounding,
                      const std::string& nan_text, Tensor& codes, Tensor& steps);
  void (*ggml_product)(const Tensor& x, const Tensor& steps, const EngineOperand& w, const Tensor& bias,
                       Tensor& y);
  void (*xnnpack_operand)(const Tensor& codes, const Tensor& scales, EngineOperand& out);
  void (*xnnpack_rows)(const Tensor& x, const std::string& nan_text, Tensor& codes, Tensor& grids);
  void (*xnnpack_values)(const Tensor& codes, const Tensor& grids, Tensor& values);
  void (*xnnpack_block_product)(const Tensor& x, const Tensor& grids, const EngineOperand& w,
                                const Tensor& bias, Tensor& y);
  void (*xnnpack_channel_sums)(const Tensor& sums, const Tensor& weights, const Tensor& grids,
                               const Tensor& scale, const Tensor& bias, Tensor& y);

  // rows
  void (*check_whole)(const Tensor& values, std::string_view function, std::string_view what);
  void (*check_indices)(const Tensor& values, std::int64_t size, std::optional<std::int64_t> allowed,
                        std::string_view function, std::string_view what);
  void (*gather_rows)(const Tensor& ids, const Tensor& table, Tensor& y);
  void (*sum_rows)(const Tensor& ids, const Tensor& x, Tensor& table);
  void (*one_hot)(const Tensor& labels, const AxisView& view, Tensor& out);

  // norms, softmax and losses
  void (*moments)(const Tensor& x, Tensor& out);
  void (*normalize)(const Tensor& x, const Tensor& coefficients, Tensor& y);
  void (*gradient_sums)(const Tensor& dy, const Tensor& x, const Tensor& center, Tensor& out);
  void (*normalize_backward)(const Tensor& dy, const Tensor& x, const Tensor& center,
                             const Tensor& coefficients, Tensor& dx);
  void (*forward_numbers)(const BatchNormForward& numbers, std::int64_t channels, Device device);
  void (*backward_numbers)(const BatchNormBackward& numbers, std::int64_t channels, Device device);
  void (*layer_norm)(const Tensor& x, std::int64_t length, const Tensor& gamma, const Tensor& beta,
                     double eps, Tensor& y, Tensor& mean, Tensor& inverse);
  void (*layer_norm_backward)(const Tensor& dy, const Tensor& x, const Tensor& gamma, const Tensor& mean,
                              const Tensor& inverse, Tensor& dx, Tensor& dgamma, Tensor& dbeta);
  void (*softmax)(const Tensor& x, const AxisView& view, bool logarithm, Tensor& y);
  void (*softmax_backward)(const Tensor& dy, const Tensor& y, const AxisView& view, bool logarithm,
                           Tensor& dx);
  void (*cross_entropy)(const Tensor& log_p, const Tensor& labels, const LabelRule& rule, Tensor& totals,
                        Tensor& loss);
  void (*cross_entropy_backward)(const Tensor& log_p, const Tensor& labels, const LabelRule& rule,
                                 const Tensor& totals, const Tensor& dy, Tensor& dx);
  void (*mse_loss)(const Tensor& a, const Tensor& b, Tensor& loss);
  void (*mse_loss_backward)(const Tensor& a, const Tensor& b, const Tensor& dy, Tensor& da, Tensor& db);

  // attention
  void (*attention_weights)(const AttentionRows& rows, const Tensor& mask, Tensor& scores);
  void (*attention_weights_backward)(const Tensor& p, double scale, Tensor& dp);
  void (*rotate)(const Tensor& x, const Tensor& table, const Rotation& rotation, Tensor& y);

  // pooling
  void (*max_pool)(const Tensor& x, const PoolSizes& sizes, Tensor& y, Tensor* argmax, const Tensor& factor);
  void (*max_pool_backward)(const Tensor& dy, const Tensor& argmax, const PoolSizes& sizes, Tensor& dx);
  void (*avg_pool)(const Tensor& x, const PoolSizes& sizes, bool include_padding, const Tensor& scale,
                   Tensor& y);
  void (*avg_pool_backward)(const Tensor& dy, const PoolSizes& sizes, bool include_padding, Tensor& dx);
  void (*sum_pixels)(const Tensor& codes, Tensor& sums);
  void (*reorder_e4m3)(const Tensor& bytes, Tensor& out);

  // products
  void (*multiply)(const Factor& a, const Factor& b, Tensor& out, std::int64_t batch, Sharing sharing);
  void (*conv_forward)(const ConvShape& shape, const Tensor& x, const Tensor& w, Tensor& y, Sharing sharing);
  void (*conv_backward_data)(const ConvShape& shape, const Tensor& dy, const Tensor& w, Tensor& dx,
                             Sharing sharing);
  void (*conv_backward_weights)(const ConvShape& shape, const Tensor& x, const Tensor& dy, Tensor& dw);
  void (*add_bias)(const Tensor& bias, Tensor& y);
  void (*bias_gradient)(const Tensor& dy, Tensor& db);
  void (*exact_gemm)(std::int64_t m, std::int64_t n, std::int64_t k, const Codes& x, const Codes& w,
                     Tensor& sums);
  /// `batch` products of matrices that lie behind each other, codes of a byte.
  void (*exact_batch)(std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k, const Codes& x,
                      const Codes& w, Tensor& sums);
  void (*exact_conv)(const ConvShape& shape, bool transposed, const Codes& x, const Codes& w, Tensor& sums);
  /// bf16, or f32 where products of bf16 are slower or wrong.
  DType (*code_factor_dtype)();

  // codes
  void (*make_scales)(QuantSpec& spec, const ScaleRule& rule, const std::string& text);
  void (*open_ranges)(const Tensor& amax, Tensor& out);
  void (*quantize)(std::span<const QuantizeCall> calls);
  void (*decode)(const QuantizedTensor& x, Tensor& out);
  void (*dequantize)(const QuantizedTensor& x, Tensor& out);
  void (*apply_mask)(const Tensor& dy, const Tensor& mask, Tensor& out);
  void (*amax_gradient)(const RangedValues& x, const QuantizedTensor& codes, const Tensor& dy, bool lsq,
                        double divisor, float factor, Tensor& out);
  /// Nothing where they cannot be told, or not without waiting for the device.
  std::optional<std::vector<std::int64_t>> (*rows_at_ends)(const QuantizedTensor& codes);
  void (*product_scale)(const Tensor& s_x, const Tensor& s_w, Tensor& out);
  void (*scale_products)(Tensor& y, const Tensor& scale, const Tensor& bias);
  /// `multiply` with `scale_products` behind it, in one pass where a device has that.
  void (*multiply_scaled)(const Factor& a, const Factor& b, const Tensor& scale, const Tensor& bias,
                          Tensor& y);
  void (*scale_to_bf16)(const Tensor& x, const Tensor& scales, std::int64_t channels, Tensor& out);
  /// The same of f32 and as many channels as `db` has, which becomes the `bias_gradient` of x.
  void (*scale_and_sum)(const Tensor& x, const Tensor& scales, Tensor& out, Tensor& db);
  void (*scale_weight_gradient)(Tensor& dw, const Tensor& s_x, const Tensor& s_w, int axis);

  // sums not yet rounded
  void (*accumulator_values)(const Accumulator& x, Tensor& out, Tensor* mask);
  void (*accumulator_codes)(const Accumulator& x, QuantizedTensor& out, const std::string& nan_text);
  void (*bias_codes)(const Tensor& b, const Tensor& scale, std::int32_t room, const std::string& nan_text,
                     Tensor& out);

  // optimizers
  UpdateKernels<float> update_f32;
  UpdateKernels<double> update_f64;
  void (*swap_contents)(std::span<const SwapArrays> arrays, Device device);
  double (*sum_of_squares)(std::span<const Tensor> tensors, Device device);

  /// That of the device. Throws BackendError for CUDA in builds without it.
  [[nodiscard]] static const Kernels& of(Device device);
};

[[noreturn]] void throw_no_cuda();
/// GPUs that can be used: 0 without a driver, with one that is too old, and in builds without CUDA.
[[nodiscard]] int gpu_count() noexcept;
/// "NVIDIA H200, 141 GB, compute 9.0". Throws BackendError for a device that is not there, saying why.
[[nodiscard]] std::string describe_gpu(Device device);
/// The same, null for CUDA in builds without it.
[[nodiscard]] const Kernels* find_kernels(Device device) noexcept;

/// The column of a device in a table of two; `meta` has the CPU's. Throws BackendError for CUDA where `cuda`
/// is null.
template <class Table>
[[nodiscard]] const Table& column_of(Device device, const Table& cpu, const Table* cuda) {
  if (!device.is_cuda()) return cpu;
  if (cuda == nullptr) throw_no_cuda();
  return *cuda;
}

/// Calls a kernel of the device's table. Nothing is computed on `meta`: what the kernel would return is empty
/// there.
template <class Table, class R, class... P, class... A>
R run(Device device, R (*Table::*kernel)(P...), A&&... arguments) {
  if (device.is_meta()) return R();
  return (Table::of(device).*kernel)(std::forward<A>(arguments)...);
}

}  // namespace fq::detail
