#include "fakequant/core/ops/linear.h"

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/ops/detail/product.h"
#include "fakequant/core/profile.h"

namespace fq::ops {
namespace {

class Linear final : public detail::Product {
 public:
  Linear(const Variable& x, const Variable& w) {
    FQ_CHECK(x.rank() >= 1 && w.rank() == 2, "linear",
             "the input is {}, the weight {}: give [.., in] and [out, in]", to_string(x.shape()),
             to_string(w.shape()));
    FQ_CHECK(x.dim(-1) == w.dim(1), "linear", "the input {} has {} features, the weight {} takes {}",
             to_string(x.shape()), x.dim(-1), to_string(w.shape()), w.dim(1));
    name = "linear";
    channels = w.dim(0);
    terms = w.dim(1);
    output_axis = x.rank() - 1;
    x_ = y_ = x.shape();
    y_.back() = channels;
    rows_ = numel(Shape(x_.begin(), x_.end() - 1));
    fewest_rows = 64;  // oneDNN multiplies few by kernels that add up in another order
    made_again = true;
  }

  [[nodiscard]] Tensor input(const Tensor& x) const override { return x.to(Layout::row_major); }
  [[nodiscard]] Tensor weight(const Tensor& w) const override { return w; }
  [[nodiscard]] Tensor output(const Tensor& y) const override { return y; }
  [[nodiscard]] Tensor gradient(const Tensor& dy) const override { return dy.to(Layout::row_major); }

  [[nodiscard]] Tensor forward(const Tensor& x, const Tensor& w) const override {
    Tensor y = Tensor::empty(y_, detail::product_dtype(x), x.device());
    detail::multiply({x, rows_, terms}, {w, terms, channels, true}, y);
    return y;
  }
  [[nodiscard]] Tensor scaled(const Tensor& x, const Tensor& w, const Tensor& scale,
                              const Variable& bias) const override {
    Tensor y = Tensor::empty(y_, detail::product_dtype(x), x.device());
    detail::multiply_scaled({x, rows_, terms}, {w, terms, channels, true}, scale, bias, y);
    return y;
  }
  [[nodiscard]] Tensor exact_sums(const detail::Codes& x, const detail::Codes& w,
                                  Device device) const override {
    Tensor sums = Tensor::empty(y_, DType::i32, device);
    detail::run(device, &detail::Kernels::exact_gemm, rows_, channels, terms, x, w, sums);
    return sums;
  }
  [[nodiscard]] Tensor backward_x(const Tensor& dy, const Tensor& w) const override {
    Shape shape = x_;
    if (shape.size() > 1) shape[0] = dy.dim(0);
    Tensor dx = Tensor::empty(shape, detail::product_dtype(dy), dy.device());
    const std::int64_t rows = numel(Shape(shape.begin(), shape.end() - 1));
    detail::multiply({dy, rows, channels}, {w, channels, terms}, dx, 1, detail::Sharing::by_threads);
    return dx;
  }
  [[nodiscard]] Tensor backward_w(const Tensor& x, const Tensor& dy) const override {
    Tensor dw = Tensor::empty({channels, terms}, detail::product_dtype(dy), dy.device());
    detail::multiply({dy, channels, rows_, true}, {x, rows_, terms}, dw, 1, detail::Sharing::by_threads);
    return dw;
  }

 private:
  Shape x_, y_;
  std::int64_t rows_ = 0;
};

}  // namespace

Variable linear(const Variable& x, const Variable& w, const Variable& bias) {
  return detail::apply(std::make_shared<Linear>(x, w), x, w, bias);
}

}  // namespace fq::ops
