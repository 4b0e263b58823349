#include "fakequant/core/ops/detail/row_product.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/ops/detail/code_products.h"
#include "fakequant/core/ops/detail/product.h"

namespace fq::detail {
namespace {

constexpr std::int64_t kLargestInput = 255;

}  // namespace

Tensor row_sums(const QuantizedTensor& w) {
  const std::int64_t channels = w.codes.dim(0), terms = w.codes.dim(1);
  Tensor out = Tensor::empty({1, channels}, DType::i32, w.codes.device());
  const Tensor ones = Tensor::full({1, terms}, 1.0, DType::u8, w.codes.device());
  run(out.device(), &Kernels::exact_gemm, std::int64_t{1}, channels, terms, Codes{ones.raw(), DType::u8, 1},
      codes_of(w, w.codes), out);
  return out.reshape({channels});
}

bool has_integer_rows(const Variable& weight) {
  const QuantizedTensor* codes = weight.defined() ? weight.quantized() : nullptr;
  return codes != nullptr && codes->grid.format.is_integer() && codes->grid.format.bits() <= 8 &&
         codes_are_factors(*codes, 0);
}

Tensor ProductRows::values() const {
  if (!codes.defined()) return floats;
  Tensor out = Tensor::empty(codes.shape(), DType::f32, codes.device());
  run(out.device(), &Kernels::dynamic_values, codes, grids, out);
  return out;
}

RowProduct::RowProduct(const Variable& weight, ops::DynamicRange range, std::int64_t batch,
                       std::string_view op)
    : op_(op) {
  if (range != ops::DynamicRange::none) {
    FQ_CHECK(
        has_integer_rows(weight), op,
        "products of integers need weights of integer codes of up to 8 bits, with one scale or one a row: "
        "quantize them so, or give no range");
    codes_ = *weight.quantized();
    codes_.mask = {};
    ranges_ = range == ops::DynamicRange::tensor ? 1 : std::max<std::int64_t>(batch, 1);
    const Codes codes = codes_of(codes_, codes_.codes);
    const std::int64_t terms = codes_.codes.dim(1), product = kLargestInput * codes.largest;
    FQ_CHECK(terms <= std::numeric_limits<std::int32_t>::max() / product, op,
             "sums of {} products of codes leave int32: use fewer features", terms);
    weight_sums_ = row_sums(codes_);
  } else {
    floats_ = Saved(weight.as_float().tensor());
  }
}

ProductRows RowProduct::rows(const Tensor& x) const {
  if (!is_integer()) return {x, {}, {}};
  ProductRows out{{},
                  Tensor::empty(x.shape(), DType::u8, x.device()),
                  Tensor::empty({ranges_, 2}, DType::f32, x.device())};
  run(x.device(), &Kernels::dynamic_codes, x, out.codes, out.grids,
      fmt::format("[{}] the input or the state has a NaN", op_));
  return out;
}

void RowProduct::multiply(const ProductRows& x, Tensor& y) const {
  if (is_integer()) return multiply_codes(x, y);
  const Tensor& w = floats_.get();
  detail::multiply({x.floats, x.floats.dim(0), x.floats.dim(1)}, {w, w.dim(1), w.dim(0), true}, y);
}

void RowProduct::multiply_codes(const ProductRows& x, Tensor& y) const {
  if (y.numel() == 0) return;
  Tensor sums = Tensor::empty(y.shape(), DType::i32, y.device());
  run(y.device(), &Kernels::exact_gemm, y.dim(0), y.dim(1), x.codes.dim(1),
      Codes{x.codes.raw(), DType::u8, kLargestInput}, codes_of(codes_, codes_.codes), sums);
  run(y.device(), &Kernels::dynamic_sums, sums, weight_sums_, x.grids, factor_scale(codes_, 0), y);
}

void multiply_back(const Tensor& dy, const Tensor& weight, Tensor& dx) {
  multiply({dy, dy.dim(0), dy.dim(1)}, {weight, weight.dim(0), weight.dim(1)}, dx, 1, Sharing::by_threads);
}

Tensor weight_gradient(const Tensor& dy, const Tensor& rows) {
  Tensor dw = Tensor::empty({dy.dim(1), rows.dim(1)}, dy.dtype(), dy.device());
  multiply({dy, dy.dim(1), dy.dim(0), true}, {rows, rows.dim(0), rows.dim(1)}, dw, 1, Sharing::by_threads);
  return dw;
}

}  // namespace fq::detail
