#include "fakequant/core/backend/cuda/codes/block_loads.cuh"
#include "fakequant/core/backend/cuda/loops/atomics.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/numerics/detail/sum_formulas.h"

namespace fq::cuda {
namespace {

using fq::detail::quotient;

/// Returns blocks for scales that repeat along the innermost elements.
AxisBlocks repeated(const Tensor& x, const Tensor& scales) {
  return AxisBlocks::repeating(x.numel(), scales.numel());
}

// scale[c] = s_x * s_w[c % scales], rounded once, and the code of the bias on this scale.
struct ProductScale {
  const float *s_x, *s_w;
  std::int64_t scales, channels;
  float* scale;
  const float* bias;  // may be null
  std::int32_t room;
  std::int32_t* codes;
  Alarm alarm;
  FQ_HD void operator()(std::int64_t c) const {
    const float own = scalar::mul_(*s_x, s_w[c - quotient(c, scales) * scales]);
    if (c < channels) scale[c] = own;
    if (bias == nullptr) return;
    codes[c] = fq::detail::bias_code(bias[c], own, room);
    if (scalar::is_nan_(bias[c])) raise(alarm);
  }
};

// y: [.., C], scale: [1] or [C], bias: [C].
struct ScaleProducts {
  float* y;
  const float *scale, *bias;  // bias may be null
  AxisBlocks scales, biases;
  FQ_HD void operator()(std::int64_t first, int count) const {
    float v[group_size], factor[group_size], term[group_size] = {};
    load_group(y + first, count, v);
    load_blocks(scales, scales.place(first), scale, count, factor);
    if (bias != nullptr) load_blocks(biases, biases.place(first), bias, count, term);
    for (int j = 0; j < group_size; ++j) v[j] = scalar::scaled_product(v[j], factor[j], term[j]);
    store_group(y + first, count, v);
  }
};

template <class Out>
// Rounds the output gradient to bf16. The codes of the other factor are exact in bf16.
struct ScaleToBf16 {
  const float *x, *scale;
  AxisBlocks scales;
  Out* out;
  FQ_HD void operator()(std::int64_t first, int count) const {
    float v[group_size], factor[group_size];
    bfloat16 rounded[group_size];
    load_group(x + first, count, v);
    load_blocks(scales, scales.place(first), scale, count, factor);
    // Rounded to bf16 even if Out is float: every device multiplies the same values.
    for (int j = 0; j < group_size; ++j) rounded[j] = bfloat16(scalar::mul_(v[j], factor[j]));
    store_converted(out + first, count, rounded);
  }
};

// The product that gave dw had dy * s_w as a factor, and codes of x without their scale s_x.
struct ScaleWeightGradient {
  float* dw;
  const float *s_x, *s_w;
  const std::uint8_t* mask;  // may be null
  AxisBlocks scales;
  FQ_HD void operator()(std::int64_t first, int count) const {
    float v[group_size], scale[group_size];
    load_group(dw + first, count, v);
    load_blocks(scales, scales.place(first), s_w, count, scale);
    for (int j = 0; j < group_size; ++j) v[j] = scalar::mul_(v[j], scalar::div_(*s_x, scale[j]));
    apply_bits(mask, first, count, v);
    store_group(dw + first, count, v);
  }
};

template <class Out>
void scale_typed(const Tensor& x, const Tensor& scales, Tensor& out) {
  launch_groups(x.device(), x.numel(),
                ScaleToBf16<Out>{device_data<float>(x), device_data<float>(scales), repeated(x, scales),
                                 mutable_device_data<Out>(out)});
}

}  // namespace

void product_scale(const Tensor& s_x, const Tensor& s_w, const Tensor& bias, std::int32_t room,
                   const std::string& nan_text, Tensor& scale, Tensor& codes) {
  const Device device = scale.device();
  // One scale may be of all channels of the bias.
  launch_each(device, bias.defined() ? bias.numel() : scale.numel(),
              ProductScale{device_data<float>(s_x), device_data<float>(s_w), s_w.numel(), scale.numel(),
                           mutable_device_data<float>(scale), device_data<float>(bias), room,
                           mutable_device_data<std::int32_t>(codes),
                           bias.defined() ? alarm(device, nan_text) : Alarm{}});
}

void scale_products(Tensor& y, const Tensor& scale, const Tensor& bias) {
  if (y.numel() == 0) return;
  launch_groups(
      y.device(), y.numel(),
      ScaleProducts{updated_device_data<float>(y), device_data<float>(scale), device_data<float>(bias),
                    repeated(y, scale), repeated(y, bias.defined() ? bias : scale)});
}

void scale_to_bf16(const Tensor& x, const Tensor& scales, std::int64_t, Tensor& out) {
  if (x.numel() == 0) return;
  out.dtype() == DType::bf16 ? scale_typed<bfloat16>(x, scales, out) : scale_typed<float>(x, scales, out);
}

void scale_weight_gradient(Tensor& dw, const Tensor& s_x, const Tensor& s_w, int axis, const Tensor& mask) {
  if (dw.numel() == 0) return;
  launch_groups(dw.device(), dw.numel(),
                ScaleWeightGradient{updated_device_data<float>(dw), device_data<float>(s_x),
                                    device_data<float>(s_w), device_data<std::uint8_t>(mask),
                                    AxisBlocks::of(dw.shape(), dw.layout(), s_w.numel() == 1 ? -1 : axis)});
}

}  // namespace fq::cuda
