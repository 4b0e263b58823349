#include "fakequant/core/ops/code_gradients.h"

#include "fakequant/core/cpu/block_codes.h"
#include "fakequant/core/cpu/channel_runs.h"
#include "fakequant/core/cpu/codes.h"
#include "fakequant/core/cpu/exact.h"
#include "fakequant/core/cpu/gradient_kernels.h"
#include "fakequant/core/formulas.h"

namespace fq::detail {
namespace {

/// dY' of channels innermost, bf16 numbers in `Out`.
template <class Out>
void scale(const Tensor& dy, const Tensor& scales, std::int64_t channels, Tensor& out) {
  std::vector<float> each(static_cast<std::size_t>(channels));
  for (std::size_t c = 0; c < each.size(); ++c)
    each[c] = scales.data<float>()[c % static_cast<std::size_t>(scales.numel())];
  const auto repeated = cpu::repeated<float>(each.data(), channels);
  const auto* from = dy.data<float>(dy.layout());
  auto* to = out.mutable_data<Out>(out.layout());
  const cpu::RunBlocks blocks(dy.numel(), channels);
  cpu::for_blocks(blocks, [&](std::int64_t begin, std::int64_t end) {
    cpu::scale_to_bf16(from + begin, end - begin, blocks.width, repeated.data(), to + begin);
  });
}

}  // namespace

DType code_factor_dtype() {
  const bool bf16 = cpu::best_exact_type() != cpu::ExactType::f32 && cpu::exact_type_works(cpu::ExactType::bf16);
  return bf16 ? DType::bf16 : DType::f32;
}

Tensor code_factor(const QuantizedTensor& x, DType dtype) {
  const bool bytes = bit_width(x.codes.dtype()) == 8 && !cpu::in_blocks(x.spec, x.shape(), "code_factor");
  if (dtype != DType::bf16 || !bytes) return code_values(x).to(dtype);
  Tensor out = Tensor::empty(x.shape(), dtype, x.codes.device(), x.layout());
  if (out.device().is_cpu()) cpu::decode_bf16(x.codes, out);
  return out;
}

CodeGradients::CodeGradients(const QuantizedTensor& x, const QuantizedTensor& w, int w_axis)
    : x_{x.codes, x.spec, {}}, w_{w.codes, w.spec, {}}, w_axis_(w_axis), type_(backward_type()) {}

Tensor CodeGradients::dy(const Tensor& dy) const {
  const Tensor floats = dy.to(DType::f32);
  if (type_ == BackwardType::fp32) return floats;
  Tensor out = Tensor::empty(dy.shape(), code_factor_dtype(), dy.device(), dy.layout());
  if (!out.device().is_cpu() || out.numel() == 0) return out;
  const std::int64_t channels = dy.layout() == Layout::channels_last ? dy.dim(1) : dy.dim(-1);
  out.dtype() == DType::bf16 ? scale<bfloat16>(floats, w_.spec.scale, channels, out)
                             : scale<float>(floats, w_.spec.scale, channels, out);
  return out;
}

Tensor CodeGradients::x() const {
  return type_ == BackwardType::fp32 ? dequantize(x_) : code_factor(x_, code_factor_dtype());
}
Tensor CodeGradients::w() const {
  return type_ == BackwardType::fp32 ? dequantize(w_) : code_factor(w_, code_factor_dtype());
}

void CodeGradients::finish_dw(Tensor& dw) const {
  if (type_ == BackwardType::fp32 || !dw.device().is_cpu()) return;
  const AxisView view = axis_view(dw.shape(), w_axis_);
  const float s_x = x_.spec.scale.data<float>()[0];
  const auto* s_w = w_.spec.scale.data<float>();
  auto* values = dw.mutable_data<float>();
  const std::int64_t one = w_.spec.scale.numel() == 1 ? 0 : 1;
#pragma omp parallel for schedule(static) if (dw.numel() > 65536)
  for (std::int64_t row = 0; row < view.outer * view.size; ++row) {
    const float factor = scalar::div_(s_x, s_w[row % view.size * one]);
    float* v = values + row * view.inner;
    for (std::int64_t i = 0; i < view.inner; ++i) v[i] *= factor;
  }
}

}  // namespace fq::detail
