#include "fakequant/reference/ggml.h"

#include "fakequant/core/backend/cpu/engines/engine_products.h"
#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/numerics/detail/ggml_formulas.h"
#include "fakequant/reference/detail/engine_operands.h"
#include "fakequant/reference/detail/through_host.h"

namespace fq::ggml {
namespace {

using detail::ggml_block;

Blocks quantized(const Tensor& x, const char* function, detail::GgmlRounding rounding) {
  detail::check_matrix(x, DType::f32, "the input", function);
  detail::check_columns(x.dim(1), ggml_block, function);
  const Device device = x.device();
  Blocks out{Tensor::empty(x.shape(), DType::i8, device),
             Tensor::empty({x.dim(0), x.dim(1) / ggml_block}, DType::f16, device)};
  detail::run(device, &detail::Kernels::ggml_blocks, x, Tensor(), rounding, std::string(), out.codes,
              out.scale);
  return out;
}

void check_blocks(const Tensor& codes, const Tensor& scale, int lower, int upper, const char* function) {
  detail::check_matrix(codes, DType::i8, "the codes", function);
  detail::check_columns(codes.dim(1), ggml_block, function);
  detail::check_shape(scale, DType::f16, {codes.dim(0), codes.dim(1) / ggml_block}, "the scale", function);
  detail::check_codes(codes, lower, upper, function);
}

namespace host {

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
  const Blocks rows = quantize_q8_0_activation(x);
  if (y.numel() == 0) return y;
  const auto weight = cpu::ggml_weight(codes, scale.to(DType::f32), buffer == Buffer::repack);
  cpu::ggml_product(rows.codes, rows.scale.to(DType::f32), weight, Tensor(), y);
  return y;
}

}  // namespace host
}  // namespace

Blocks quantize_q4_0(const Tensor& x) {
  return quantized(x, "ggml.quantize_q4_0", detail::GgmlRounding::q4_0);
}
Blocks quantize_q8_0(const Tensor& x) {
  return quantized(x, "ggml.quantize_q8_0", detail::GgmlRounding::q8_0);
}
Blocks quantize_q8_0_activation(const Tensor& x) {
  return quantized(x, "ggml.quantize_q8_0_activation", detail::GgmlRounding::activation);
}

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
