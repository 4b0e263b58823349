#include "fakequant/reference/ggml.h"

#include <algorithm>
#include <cmath>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/numerics/detail/ggml_formulas.h"
#include "fakequant/reference/detail/engine_operands.h"
#include "fakequant/reference/detail/through_host.h"

namespace fq::ggml {
namespace {

using detail::ggml_block;
using detail::GgmlStep;

/// step(block) and code(x, factor) of every block of 32.
template <class Step, class Code>
Blocks quantize_blocks(const Tensor& x, const char* function, Step&& step, Code&& code) {
  detail::check_matrix(x, DType::f32, "the input", function);
  detail::check_columns(x.dim(1), ggml_block, function);
  const Device device = x.device();
  Blocks out{Tensor::empty(x.shape(), DType::i8, device),
             Tensor::empty({x.dim(0), x.dim(1) / ggml_block}, DType::f16, device)};
  if (device.is_meta()) return out;
  const auto* in = x.data<float>();
  auto* codes = out.codes.mutable_data<std::int8_t>();
  auto* scales = out.scale.mutable_data<float16>();
#pragma omp parallel for schedule(static) if (x.numel() > detail::engine_parallel)
  for (std::int64_t b = 0; b < x.numel() / ggml_block; ++b) {
    const float* block = in + b * ggml_block;
    const GgmlStep s = step(detail::ggml_extreme(block));
    scales[b] = float16(s.step);
    for (std::int64_t i = 0; i < ggml_block; ++i) codes[b * ggml_block + i] = code(block[i], s.factor);
  }
  return out;
}

template <class Sum>
void multiply(const Blocks& x, const Blocks& w, Tensor& y) {
  const std::int64_t rows = x.codes.dim(0), outputs = w.codes.dim(0), blocks = x.scale.dim(1);
  const auto *a = x.codes.data<std::int8_t>(), *b = w.codes.data<std::int8_t>();
  const auto *a_scale = x.scale.data<float16>(), *b_scale = w.scale.data<float16>();
  auto* out = y.mutable_data<float>();
#pragma omp parallel for schedule(static) if (rows * outputs * blocks > detail::engine_parallel)
  for (std::int64_t at = 0; at < rows * outputs; ++at) {
    const std::int64_t m = at / outputs * blocks, n = at % outputs * blocks;
    Sum sum;
    for (std::int64_t k = 0; k < blocks; ++k)
      sum.add(a + (m + k) * ggml_block, b + (n + k) * ggml_block,
              detail::ggml_scale(a_scale[m + k], b_scale[n + k]));
    out[at] = sum.total();
  }
}

void check_blocks(const Tensor& codes, const Tensor& scale, int lower, int upper, const char* function) {
  detail::check_matrix(codes, DType::i8, "the codes", function);
  detail::check_columns(codes.dim(1), ggml_block, function);
  detail::check_shape(scale, DType::f16, {codes.dim(0), codes.dim(1) / ggml_block}, "the scale", function);
  detail::check_codes(codes, lower, upper, function);
}

namespace host {

Blocks q4_0(const Tensor& x) {
  return quantize_blocks(x, "ggml.quantize_q4_0", GgmlStep::q4_0, detail::ggml_q4_0_code);
}
Blocks q8_0(const Tensor& x) {
  return quantize_blocks(
      x, "ggml.quantize_q8_0", [](float extreme) { return GgmlStep::q8_0(std::fabs(extreme)); },
      detail::ggml_q8_0_code);
}
Blocks q8_0_activation(const Tensor& x) {
  return quantize_blocks(
      x, "ggml.quantize_q8_0_activation",
      [](float extreme) { return GgmlStep::q8_0_activation(std::fabs(extreme)); },
      detail::ggml_activation_code);
}

Tensor matmul(const Tensor& x, const Tensor& codes, const Tensor& scale, int bits, Buffer buffer) {
  const char* function = bits == 4 ? "ggml.matmul_q4_0_q8_0" : "ggml.matmul_q8_0";
  check_blocks(codes, scale, bits == 4 ? -8 : -128, bits == 4 ? 7 : 127, function);
  detail::check_matrix(x, DType::f32, "the input", function);
  detail::check_same_columns(x.dim(1), codes.dim(1), function);
  FQ_CHECK(buffer == Buffer::plain || codes.dim(0) % 8 == 0, function,
           "the weight has {} rows: the repack buffer takes a multiple of 8, the plain one any",
           codes.dim(0));
  Tensor y = Tensor::empty({x.dim(0), codes.dim(0)}, DType::f32, x.device());
  if (x.device().is_meta()) return y;
  const Blocks rows = q8_0_activation(x);
  buffer == Buffer::plain ? multiply<detail::GgmlPlainSum>(rows, {codes, scale}, y)
                          : multiply<detail::GgmlRepackSum>(rows, {codes, scale}, y);
  return y;
}

}  // namespace host
}  // namespace

Blocks quantize_q4_0(const Tensor& x) { return detail::through_host(host::q4_0, x); }
Blocks quantize_q8_0(const Tensor& x) { return detail::through_host(host::q8_0, x); }
Blocks quantize_q8_0_activation(const Tensor& x) { return detail::through_host(host::q8_0_activation, x); }

Buffer buffer(std::string_view name) {
  FQ_CHECK(name == "plain" || name == "repack", "ggml.buffer", "no buffer '{}': use plain or repack", name);
  return name == "plain" ? Buffer::plain : Buffer::repack;
}

Tensor matmul_q4_0_q8_0(const Tensor& x, const Blocks& weight, Buffer buffer) {
  return detail::through_host(host::matmul, x, weight.codes, weight.scale, 4, buffer);
}
Tensor matmul_q8_0(const Tensor& x, const Blocks& weight) {
  return detail::through_host(host::matmul, x, weight.codes, weight.scale, 8, Buffer::plain);
}

}  // namespace fq::ggml
