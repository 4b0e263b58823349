// What core/cuda has, for builds without it: there is no device, and whoever asks for one is told so.

#include "fakequant/core/capture.h"
#include "fakequant/core/cuda/accumulators.h"
#include "fakequant/core/cuda/activations.h"
#include "fakequant/core/cuda/batch_norm.h"
#include "fakequant/core/cuda/bias.h"
#include "fakequant/core/cuda/broadcast.h"
#include "fakequant/core/cuda/clip.h"
#include "fakequant/core/cuda/code_products.h"
#include "fakequant/core/cuda/codes.h"
#include "fakequant/core/cuda/conv.h"
#include "fakequant/core/cuda/dropout.h"
#include "fakequant/core/cuda/exact.h"
#include "fakequant/core/cuda/fake_quant.h"
#include "fakequant/core/cuda/fake_quant_blocks.h"
#include "fakequant/core/cuda/layer_norm.h"
#include "fakequant/core/cuda/matmul.h"
#include "fakequant/core/cuda/packed.h"
#include "fakequant/core/cuda/permute.h"
#include "fakequant/core/cuda/pool.h"
#include "fakequant/core/cuda/range_gradients.h"
#include "fakequant/core/cuda/rows.h"
#include "fakequant/core/cuda/runs.h"
#include "fakequant/core/cuda/runtime.h"
#include "fakequant/core/cuda/scales.h"
#include "fakequant/core/cuda/softmax.h"
#include "fakequant/core/cuda/tensors.h"
#include "fakequant/core/cuda/transfer.h"
#include "fakequant/core/cuda/updates.h"
#include "fakequant/core/error.h"

namespace fq {
namespace cuda {
namespace {

constexpr const char* kAbsent =
    "this build has no CUDA: use --device cpu, or build where nvcc is found (-DFAKEQUANT_CUDA=ON)";

[[noreturn]] void absent() { throw BackendError(std::string("[cuda] ") + kAbsent); }

}  // namespace

int device_count() noexcept { return 0; }
std::string why_unusable() { return kAbsent; }
std::string describe_device(Device) { absent(); }
void* allocate(std::size_t, Device) { absent(); }
void deallocate(void*, std::size_t, Device) noexcept {}
MemoryStats memory_stats(Device) noexcept { return {}; }
void reset_peak_memory(Device) noexcept {}
void release_cached_memory() noexcept {}
void touched(const Storage&, const void*, bool) noexcept {}
void fill_bytes(void*, int, std::size_t, Device) { absent(); }
void copy(void*, Device, const void*, Device, std::size_t) { absent(); }
void wait_for(Device) { absent(); }

void fill(Tensor&, double) { absent(); }
void convert(const Tensor&, Tensor&) { absent(); }
void relayout(const Tensor&, Tensor&) { absent(); }

void gemm(const Matrix&, const Matrix&, const Product&, std::int64_t, Device) { absent(); }
void conv_forward(const ConvShape&, const void*, const void*, DType, void*, Device) { absent(); }
void conv_backward_data(const ConvShape&, const void*, const void*, DType, void*, Device) { absent(); }
void conv_backward_weights(const ConvShape&, const void*, const void*, DType, void*, Device) { absent(); }
void exact_gemm(std::int64_t, std::int64_t, std::int64_t, const Codes&, const Codes&, std::int32_t*, Device) {
  absent();
}
void exact_conv(const ConvShape&, const Codes&, const Codes&, std::int32_t*, Device) { absent(); }
void exact_conv_transpose(const ConvShape&, const Codes&, const Codes&, std::int32_t*, Device) { absent(); }
ExactType best_exact_type(Device) { absent(); }
void upload(const void*, std::size_t, void*, Device) { absent(); }
struct Readback::Body {};
Readback::Readback(const void*, std::size_t, Device) { absent(); }
Readback::~Readback() = default;
Readback::Readback(Readback&&) noexcept = default;
Readback& Readback::operator=(Readback&&) noexcept = default;
void Readback::get(void*) { absent(); }
void add_bias(const Tensor&, Tensor&) { absent(); }
void bias_gradient(const Tensor&, Tensor&) { absent(); }
void combine(const Tensor&, const Tensor&, const fq::detail::Arithmetic&, Tensor&) { absent(); }
void scale(const Tensor&, double, Tensor&) { absent(); }
void sum_to(const Tensor&, Tensor&) { absent(); }
void activate(const Tensor&, const fq::detail::Activation&, Tensor&) { absent(); }
void activate_backward(const Tensor&, const Tensor&, const fq::detail::Activation&, Tensor&) { absent(); }
void permute(const Tensor&, const std::vector<int>&, Tensor&) { absent(); }
void keep_mask(const fq::detail::DropoutBlocks&, Tensor&) { absent(); }
void keep(const Tensor&, const Tensor&, double, Tensor&) { absent(); }
void check_whole(const Tensor&, std::string_view, std::string_view) { absent(); }
void check_indices(const Tensor&, std::int64_t, std::string_view, std::string_view) { absent(); }
void moments(const Tensor&, Tensor&) { absent(); }
void normalize(const Tensor&, const Tensor&, Tensor&) { absent(); }
void gradient_sums(const Tensor&, const Tensor&, const Tensor&, Tensor&) { absent(); }
void normalize_backward(const Tensor&, const Tensor&, const Tensor&, const Tensor&, Tensor&) { absent(); }
void forward_numbers(const fq::detail::BatchNormForward&, std::int64_t, Device) { absent(); }
void backward_numbers(const fq::detail::BatchNormBackward&, std::int64_t, Device) { absent(); }

void layer_norm(const Tensor&, std::int64_t, const Tensor&, const Tensor&, double, Tensor&, Tensor&,
                Tensor&) {
  absent();
}
void layer_norm_backward(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, Tensor&,
                         Tensor&, Tensor&) {
  absent();
}
void softmax(const Tensor&, const AxisView&, bool, Tensor&) { absent(); }
void softmax_backward(const Tensor&, const Tensor&, const AxisView&, bool, Tensor&) { absent(); }
void cross_entropy(const Tensor&, const Tensor&, double, Tensor&) { absent(); }
void cross_entropy_backward(const Tensor&, const Tensor&, double, const Tensor&, Tensor&) { absent(); }
void mse_loss(const Tensor&, const Tensor&, Tensor&) { absent(); }
void mse_loss_backward(const Tensor&, const Tensor&, const Tensor&, Tensor&, Tensor&) { absent(); }

void max_pool(const Tensor&, const PoolSizes&, Tensor&, Tensor*, const Tensor&) { absent(); }
void max_pool_backward(const Tensor&, const Tensor&, const PoolSizes&, Tensor&) { absent(); }
void avg_pool(const Tensor&, const PoolSizes&, bool, const Tensor&, Tensor&) { absent(); }
void avg_pool_backward(const Tensor&, const PoolSizes&, bool, Tensor&) { absent(); }
void sum_pixels(const Tensor&, Tensor&) { absent(); }
void reorder_e4m3(const Tensor&, Tensor&) { absent(); }

template <class T>
void sgd(std::span<const fq::detail::SgdArrays<T>>, const fq::detail::SgdFactors<T>&, Device) {
  absent();
}
template <class T>
void adam(std::span<const fq::detail::AdamArrays<T>>, const fq::detail::AdamFactors<T>&, Device) {
  absent();
}
template <class T>
void move_towards(std::span<const fq::detail::PairArrays<T>>, T, Device) {
  absent();
}
template void sgd(std::span<const fq::detail::SgdArrays<float>>, const fq::detail::SgdFactors<float>&, Device);
template void sgd(std::span<const fq::detail::SgdArrays<double>>, const fq::detail::SgdFactors<double>&, Device);
template void adam(std::span<const fq::detail::AdamArrays<float>>, const fq::detail::AdamFactors<float>&, Device);
template void adam(std::span<const fq::detail::AdamArrays<double>>, const fq::detail::AdamFactors<double>&, Device);
template void move_towards(std::span<const fq::detail::PairArrays<float>>, float, Device);
template void move_towards(std::span<const fq::detail::PairArrays<double>>, double, Device);
void swap_contents(std::span<const fq::detail::SwapArrays>, Device) { absent(); }
double sum_of_squares(std::span<const Tensor>, Device) { absent(); }

void gather_rows(const Tensor&, const Tensor&, Tensor&) { absent(); }
void sum_rows(const Tensor&, const Tensor&, Tensor&) { absent(); }

void decode(const QuantizedTensor&, Tensor&) { absent(); }
void dequantize(const QuantizedTensor&, Tensor&) { absent(); }
void quantize(const QuantizeCall&) { absent(); }
void quantize(const std::vector<QuantizeCall>&) { absent(); }
void apply_mask(const Tensor&, const Tensor&, Tensor&) { absent(); }

void accumulator_values(const Accumulator&, Tensor&, Tensor*) { absent(); }
void accumulator_codes(const Accumulator&, QuantizedTensor&, const std::string&) { absent(); }
void bias_codes(const Tensor&, const Tensor&, std::int32_t, Tensor&) { absent(); }

void make_scales(QuantSpec&, const fq::detail::FromAmax&, const std::string&) { absent(); }
void make_scales(QuantSpec&, const fq::detail::OfScaleBits&, const std::string&) { absent(); }
void open_ranges(const Tensor&, Tensor&) { absent(); }
void amax_gradient(const Tensor&, const QuantizedTensor&, const Tensor&, bool, double, float, Tensor&) {
  absent();
}

void copy_runs(const fq::detail::StridedBits&, const void*, void*, Device) { absent(); }
void pack_codes(const Tensor&, Tensor&) { absent(); }
void unpack_codes(const Tensor&, bool, Tensor&) { absent(); }

void product_scale(const Tensor&, const Tensor&, Tensor&) { absent(); }
void scale_products(Tensor&, const Tensor&, const Tensor&) { absent(); }
void scale_to_bf16(const Tensor&, const Tensor&, Tensor&) { absent(); }
void scale_weight_gradient(Tensor&, const Tensor&, const Tensor&, int) { absent(); }

void fake_quant_integer(const Tensor&, const Tensor&, const Tensor&, const IntFormat&, Tensor&, Tensor*) {
  absent();
}
void integer_codes(const Tensor&, const Tensor&, const IntFormat&, Tensor&) { absent(); }
void fake_quant_e4m3(const Tensor&, const Tensor&, const Tensor&, Tensor&, Tensor*) { absent(); }
void round_to_integers(const Tensor&, float, float, Tensor&, Tensor*) { absent(); }
float smallest(const Tensor&) { absent(); }

void fake_quant_fp4(const Tensor&, const Tensor&, const Tensor&, Tensor&, Tensor*) { absent(); }
void fake_quant_blocks(const Tensor&, std::int64_t, const cpu::ElementGrid&, const fq::detail::BlockScales&,
                       float, Tensor&, Tensor*) {
  absent();
}
void fake_quant_nvfp4(const Tensor&, float, float, Tensor&, Tensor*) { absent(); }
void fake_quant_rows(const Tensor&, std::int64_t, const cpu::ElementGrid&, bool,
                     const fq::detail::BlockScales&, Tensor&) {
  absent();
}
void fake_quant_nvfp4_rows(const Tensor&, float, Tensor&) { absent(); }

Tensor mask_within(const Tensor&, const Tensor&) { absent(); }
Tensor mask_between(const Tensor&, const Tensor&, const Tensor&) { absent(); }
void clip(const Tensor&, const Tensor&, const Tensor&, Tensor&) { absent(); }
Tensor sum_beyond(const Tensor&, const Tensor&, const Tensor&, bool) { absent(); }

}  // namespace cuda

namespace detail {

struct Capture::Body {};
Capture::Capture(Device) { cuda::absent(); }
Capture::~Capture() = default;
void Capture::add(const std::function<void()>&) { cuda::absent(); }
void Capture::launch(std::size_t) { cuda::absent(); }

}  // namespace detail
}  // namespace fq
