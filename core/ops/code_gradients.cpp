#include "fakequant/core/ops/code_gradients.h"

#include "fakequant/core/cpu/block_codes.h"
#include "fakequant/core/cpu/channel_runs.h"
#include "fakequant/core/cpu/codes.h"
#include "fakequant/core/cpu/exact.h"
#include "fakequant/core/cpu/gradient_kernels.h"
#include "fakequant/core/cuda/code_products.h"
#include "fakequant/core/cuda/codes.h"
#include "fakequant/core/formulas.h"
#include "fakequant/core/ops/code_products.h"

namespace fq::detail {
namespace {

/// x[.., c] * scales[c % scales] of channels innermost, rounded to bf16 numbers in `Out`.
template <class Out>
void scale_as(const Tensor& x, const Tensor& scales, std::int64_t channels, Tensor& out) {
  std::vector<float> each(static_cast<std::size_t>(channels));
  const auto* scale = scales.data<float>();
  for (std::int64_t c = 0; c < channels; ++c) each[static_cast<std::size_t>(c)] = scale[c % scales.numel()];
  const auto repeated = cpu::repeated<float>(each.data(), channels);
  const auto* from = x.data<float>(x.layout());
  auto* to = out.mutable_data<Out>(out.layout());
  const cpu::RunBlocks blocks(x.numel(), channels);
  cpu::for_blocks(blocks, [&](std::int64_t begin, std::int64_t end) {
    cpu::scale_to_bf16(from + begin, end - begin, blocks.width, repeated.data(), to + begin);
  });
}

Tensor scaled(const Tensor& x, const Tensor& scales, std::int64_t channels, DType dtype) {
  Tensor out = Tensor::empty(x.shape(), dtype, x.device(), x.layout());
  if (out.device().is_cuda()) cuda::scale_to_bf16(x, scales, out);
  if (!out.device().is_cpu() || out.numel() == 0) return out;
  dtype == DType::bf16 ? scale_as<bfloat16>(x, scales, channels, out)
                       : scale_as<float>(x, scales, channels, out);
  return out;
}

}  // namespace

DType code_factor_dtype(Device device) {
  if (device.is_cuda()) return DType::bf16;
  const bool bf16 =
      cpu::best_exact_type() != cpu::ExactType::f32 && cpu::exact_type_works(cpu::ExactType::bf16);
  return bf16 ? DType::bf16 : DType::f32;
}

Tensor code_factor(const QuantizedTensor& x, int axis, DType dtype) {
  const Device device = x.codes.device();
  if (!codes_are_factors(x, axis)) {
    const double inverse = static_cast<double>(1.0f / x.spec.unit);
    return scaled(dequantize(x), Tensor::full({}, inverse, DType::f32, device), 1, dtype);
  }
  const bool bytes = bit_width(x.codes.dtype()) == 8 && !cpu::in_blocks(x.spec, x.shape(), "code_factor");
  if (dtype != DType::bf16 || !bytes) return code_values(x).to(dtype);
  Tensor out = Tensor::empty(x.shape(), dtype, device, x.layout());
  if (device.is_cpu()) cpu::decode_bf16(x.codes, out);
  if (device.is_cuda()) cuda::decode(x, out);
  return out;
}

CodeGradients::CodeGradients(const QuantizedTensor& x, const QuantizedTensor& w, int w_axis)
    : x_{x.codes, x.spec, {}}, w_{w.codes, w.spec, {}}, w_axis_(w_axis), type_(backward_type()) {}

Tensor CodeGradients::dy(const Tensor& dy) const {
  const Tensor floats = dy.to(DType::f32);
  if (type_ == BackwardType::fp32) return floats;
  const std::int64_t channels = dy.layout() == Layout::channels_last ? dy.dim(1) : dy.dim(-1);
  return scaled(floats, factor_scale(w_, w_axis_), channels, code_factor_dtype(dy.device()));
}

Tensor CodeGradients::x() const {
  return type_ == BackwardType::fp32 ? dequantize(x_)
                                     : code_factor(x_, -1, code_factor_dtype(x_.codes.device()));
}
Tensor CodeGradients::w() const {
  return type_ == BackwardType::fp32 ? dequantize(w_)
                                     : code_factor(w_, w_axis_, code_factor_dtype(w_.codes.device()));
}

void CodeGradients::finish_dw(Tensor& dw) const {
  if (type_ == BackwardType::fp32) return;
  const Tensor x_scale = factor_scale(x_, -1), w_scale = factor_scale(w_, w_axis_);
  if (dw.device().is_cuda()) cuda::scale_weight_gradient(dw, x_scale, w_scale, w_axis_);
  if (!dw.device().is_cpu()) return;
  const AxisView view = axis_view(dw.shape(), w_axis_);
  const auto *s_x = x_scale.data<float>(), *s_w = w_scale.data<float>();
  auto* values = dw.mutable_data<float>();
#pragma omp parallel for schedule(static) if (dw.numel() > 65536)
  for (std::int64_t row = 0; row < view.outer * view.size; ++row) {
    const float factor = scalar::div_(*s_x, s_w[row % view.size % w_scale.numel()]);
    float* v = values + row * view.inner;
    for (std::int64_t i = 0; i < view.inner; ++i) v[i] *= factor;
  }
}

}  // namespace fq::detail
