#include "fakequant/core/backend/cpu/elementwise/map.h"
#include "fakequant/core/backend/cpu/engines/engine_products.h"
#include "fakequant/core/backend/cpu/engines/row_code_kernels.h"
#include "fakequant/core/backend/engine_operand.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/error.h"
#include "fakequant/core/numerics/detail/xnnpack_formulas.h"

namespace fq::cpu {
namespace {

/// Codes of a row, and its step and zero point; whether a number was NaN.
bool xnnpack_row(const float* x, std::int64_t columns, std::int8_t* codes, float* numbers) {
  float low = 0, high = 0;
  const bool nan = row_range(x, columns, &low, &high);
  const auto grid = detail::XnnpackRow::of(low, high);
  numbers[0] = grid.inverse;
  numbers[1] = grid.zero;
  std::int64_t k = 0;
  if (!nan && have_vector_codes(high - low, grid.factor))
    k = row_codes(x, columns, grid.factor, grid.zero, codes);
  for (; k < columns; ++k) codes[k] = grid.code(x[k]);
  return nan;
}

bool xnnpack_rows(const Tensor& x, Tensor& codes, Tensor& grids) {
  const std::int64_t rows = x.dim(0), columns = x.dim(1);
  const auto* in = x.data<float>();
  auto* out = codes.mutable_data<std::int8_t>();
  auto* numbers = grids.mutable_data<float>();
  bool nan = false;
#pragma omp parallel for schedule(static) reduction(|| : nan) if (x.numel() > parallel_elements)
  for (std::int64_t m = 0; m < rows; ++m)
    nan = xnnpack_row(in + m * columns, columns, out + m * columns, numbers + 2 * m) || nan;
  return nan;
}

}  // namespace

void ggml_operand(const Tensor& codes, const Tensor& scales, bool in_lanes, detail::EngineOperand& out) {
  out.packed = std::make_shared<const PackedWeight>(ggml_weight(codes, scales, !in_lanes));
}
void xnnpack_operand(const Tensor& codes, const Tensor& scales, detail::EngineOperand& out) {
  out.packed = std::make_shared<const PackedWeight>(xnnpack_weight(codes, scales));
}

void ggml_blocks(const Tensor& x, const Tensor& extreme_codes, detail::GgmlRounding rounding,
                 const std::string& nan_text, Tensor& codes, Tensor& steps) {
  if (ggml_codes(x, extreme_codes, rounding, codes, steps) && !nan_text.empty()) throw NumericError(nan_text);
}
void xnnpack_rows(const Tensor& x, const std::string& nan_text, Tensor& codes, Tensor& grids) {
  if (xnnpack_rows(x, codes, grids)) throw NumericError(nan_text);
}

void ggml_product(const Tensor& x, const Tensor& steps, const detail::EngineOperand& w, const Tensor& bias,
                  Tensor& y) {
  ggml_product(x, steps, *w.packed, bias, y);
}
void xnnpack_block_product(const Tensor& x, const Tensor& grids, const detail::EngineOperand& w,
                           const Tensor& bias, Tensor& y) {
  xnnpack_block_product(x, grids, *w.packed, bias, y);
}

}  // namespace fq::cpu
