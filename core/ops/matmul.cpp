#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/ops/detail/product.h"
#include "fakequant/core/ops/linear.h"

namespace fq::ops {
namespace {

/// Of pairs of matrices, or of many rows and one matrix.
class Matmul final : public detail::Product {
 public:
  Matmul(const Variable& a, const Variable& b, bool turned) : turned_(turned), a_(a.shape()), b_(b.shape()) {
    name = "matmul";
    const auto text = [&] {
      return fmt::format("{} times {}{}", to_string(a_), to_string(b_), turned ? " transposed" : "");
    };
    FQ_CHECK(a.rank() >= 2 && b.rank() >= 2 && a.dim(-1) == b.dim(turned ? -1 : -2), name,
             "{}: give [.., m, k] and {}", text(), turned ? "[n, k]" : "[k, n]");
    terms = a.dim(-1);
    channels = b.dim(turned ? -2 : -1);
    weight_axis = -1;
    output_axis = a.rank() - 1;
    y_ = a_;
    y_.back() = channels;
    rows_ = numel(Shape(y_.begin(), y_.end() - 1));
    if (b.rank() > 2) {
      const Shape leading(a_.begin(), a_.end() - 2);
      FQ_CHECK(leading == Shape(b_.begin(), b_.end() - 2), name, "{}: the leading sizes must be the same",
               text());
      batch_ = numel(leading);
      rows_ = a.dim(-2);
      same_weights = false;
    }
    attributes = {{"transpose_b", turned}};
  }

  [[nodiscard]] Tensor input(const Tensor& x) const override { return x.to(Layout::row_major); }
  /// Codes of integers are multiplied along their rows: b^T.
  [[nodiscard]] Tensor weight(const Tensor& w) const override {
    const Tensor rows = w.to(Layout::row_major);
    if (turned_ || (w.dtype() != DType::i8 && w.dtype() != DType::u8)) return rows;
    Shape shape = b_;
    std::vector<int> axes(shape.size());
    for (std::size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int>(i);
    std::swap(axes[axes.size() - 2], axes.back());
    std::swap(shape[shape.size() - 2], shape.back());
    Tensor out = Tensor::empty(shape, w.dtype(), w.device());
    detail::run(w.device(), &detail::Kernels::permute, rows, axes, out);
    return out;
  }
  [[nodiscard]] Tensor output(const Tensor& y) const override { return y; }
  [[nodiscard]] Tensor gradient(const Tensor& dy) const override { return dy.to(Layout::row_major); }

  [[nodiscard]] Tensor forward(const Tensor& x, const Tensor& w) const override {
    Tensor y = Tensor::empty(y_, detail::product_dtype(x), x.device());
    detail::multiply({x, rows_, terms}, {w, terms, channels, turned_}, y, batch_);
    return y;
  }
  [[nodiscard]] Tensor exact_sums(const detail::Codes& x, const detail::Codes& w,
                                  Device device) const override {
    Tensor sums = Tensor::empty(y_, DType::i32, device);
    detail::run(device, &detail::Kernels::exact_batch, batch_, rows_, channels, terms, x, w, sums);
    return sums;
  }
  [[nodiscard]] Tensor backward_x(const Tensor& dy, const Tensor& w) const override {
    Shape shape = a_;
    shape[0] = dy.dim(0);
    Tensor dx = Tensor::empty(shape, detail::product_dtype(dy), dy.device());
    const std::int64_t rows = same_weights ? numel(Shape(shape.begin(), shape.end() - 1)) : rows_;
    detail::multiply({dy, rows, channels}, {w, channels, terms, !turned_}, dx, batch_);
    return dx;
  }
  [[nodiscard]] Tensor backward_w(const Tensor& x, const Tensor& dy) const override {
    Tensor dw = Tensor::empty(b_, detail::product_dtype(dy), dy.device());
    if (turned_)
      detail::multiply({dy, channels, rows_, true}, {x, rows_, terms}, dw, batch_);
    else
      detail::multiply({x, terms, rows_, true}, {dy, rows_, channels}, dw, batch_);
    return dw;
  }

 private:
  bool turned_;
  Shape a_, b_, y_;
  std::int64_t batch_ = 1, rows_ = 0;
};

}  // namespace

Variable matmul(const Variable& a, const Variable& b, bool transpose_b) {
  return detail::apply(std::make_shared<Matmul>(a, b, transpose_b), a, b, {});
}

}  // namespace fq::ops
