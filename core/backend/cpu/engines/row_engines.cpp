#include "fakequant/core/backend/cpu/engines/row_engines.h"

#include "fakequant/core/error.h"

namespace fq::cpu {
namespace {

void check_numbers(const Tensor& x, const std::string& nan_text) {
  const auto* values = x.data<float>();
  int nan = 0;
#pragma omp simd reduction(| : nan)
  for (std::int64_t i = 0; i < x.numel(); ++i) nan |= values[i] != values[i] ? 1 : 0;
  if (nan != 0) throw NumericError(nan_text);
}

}  // namespace

void ggml_operand(const Tensor& codes, const Tensor& scales, bool in_lanes, detail::EngineOperand& out) {
  out.packed = ggml_weight(codes, scales, !in_lanes);
}
void xnnpack_operand(const Tensor& codes, const Tensor& scales, detail::EngineOperand& out) {
  out.packed = xnnpack_weight(codes, scales);
}

void ggml_blocks(const Tensor& x, detail::GgmlRounding rounding, const std::string& nan_text, Tensor& codes,
                 Tensor& steps) {
  if (!nan_text.empty()) check_numbers(x, nan_text);
  ggml_codes(x, rounding, codes, steps);
}
void xnnpack_rows(const Tensor& x, const std::string& nan_text, Tensor& codes, Tensor& grids) {
  check_numbers(x, nan_text);
  xnnpack_codes(x, codes, grids);
}

void ggml_product(const Tensor& x, const Tensor& steps, const detail::EngineOperand& w, Tensor& y) {
  ggml_product(x, steps, w.packed, y);
}
void xnnpack_block_product(const Tensor& x, const Tensor& grids, const detail::EngineOperand& w,
                           const Tensor& bias, Tensor& y) {
  xnnpack_block_product(x, grids, w.packed, bias, y);
}

}  // namespace fq::cpu
