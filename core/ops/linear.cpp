#include "fakequant/core/ops/linear.h"

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/ops/detail/operator.h"
#include "fakequant/core/ops/detail/product.h"
#include "fakequant/core/profile.h"

namespace fq::ops {
namespace {

// x: [.., K], w: [N, K], y: [.., N], row-major. All leading axes of x are rows of one product.
class Linear final : public detail::Product {
 public:
  Linear(const Variable& x, const Variable& w) {
    FQ_CHECK(x.rank() >= 1 && w.rank() == 2, "linear",
             "the input is {}, the weight {}: use [.., in] and [out, in]", to_string(x.shape()),
             to_string(w.shape()));
    FQ_CHECK(x.dim(-1) == w.dim(1), "linear", "the input {} has {} features, the weight {} expects {}",
             to_string(x.shape()), x.dim(-1), to_string(w.shape()), w.dim(1));
    name = "linear";
    channels = w.dim(0);
    terms = w.dim(1);
    output_axis = x.rank() - 1;
    x_ = y_ = x.shape();
    y_.back() = channels;
    rows_ = numel(Shape(x_.begin(), x_.end() - 1));
    fewest_rows = 64;  // oneDNN uses kernels with another summation order below this
    recomputes_sums = true;
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
    // dy may have fewer rows than y: see `product_input_gradient`.
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

namespace {

/// Product of pairs of matrices, or of many rows and one matrix. a: [.., M, K], b: [.., K, N], or [.., N, K]
/// with `transpose_b`; y: [.., M, N]. With b of rank 2, all leading axes of a become rows of a single
/// product. Otherwise there is one product per pair of matrices.
class Matmul final : public detail::Product {
 public:
  Matmul(const Variable& a, const Variable& b, bool transpose_b)
      : transpose_b_(transpose_b), a_(a.shape()), b_(b.shape()) {
    name = "matmul";
    const auto text = [&] {
      return fmt::format("{} times {}{}", to_string(a_), to_string(b_), transpose_b ? " transposed" : "");
    };
    FQ_CHECK(a.rank() >= 2 && b.rank() >= 2 && a.dim(-1) == b.dim(transpose_b ? -1 : -2), name,
             "{}: use [.., m, k] and {}", text(), transpose_b ? "[n, k]" : "[k, n]");
    terms = a.dim(-1);
    channels = b.dim(transpose_b ? -2 : -1);
    // -1: b is an activation, whose integer codes have one scale for the whole tensor.
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
    attributes = {{"transpose_b", transpose_b}};
  }

  [[nodiscard]] Tensor input(const Tensor& x) const override { return x.to(Layout::row_major); }
  /// Integer codes are multiplied along their rows, as b^T.
  [[nodiscard]] Tensor weight(const Tensor& w) const override {
    const Tensor rows = w.to(Layout::row_major);
    if (transpose_b_ || (w.dtype() != DType::i8 && w.dtype() != DType::u8)) return rows;
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
    detail::multiply({x, rows_, terms}, {w, terms, channels, transpose_b_}, y, batch_);
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
    detail::multiply({dy, rows, channels}, {w, channels, terms, !transpose_b_}, dx, batch_);
    return dx;
  }
  [[nodiscard]] Tensor backward_w(const Tensor& x, const Tensor& dy) const override {
    // dB = A^T dY, or its transpose dY^T A.
    Tensor dw = Tensor::empty(b_, detail::product_dtype(dy), dy.device());
    if (transpose_b_)
      detail::multiply({dy, channels, rows_, true}, {x, rows_, terms}, dw, batch_);
    else
      detail::multiply({x, terms, rows_, true}, {dy, rows_, channels}, dw, batch_);
    return dw;
  }

 private:
  bool transpose_b_;
  Shape a_, b_, y_;
  std::int64_t batch_ = 1, rows_ = 0;
};

}  // namespace

Variable matmul(const Variable& a, const Variable& b, bool transpose_b) {
  return detail::apply(std::make_shared<Matmul>(a, b, transpose_b), a, b, {});
}

namespace {

constexpr std::string_view kEmbedding = "embedding";

/// Returns the ids as i64, row-major. All of them are valid rows of the table.
Tensor checked_ids(const Variable& ids, const Tensor& table) {
  const auto* tensor = ids.defined() ? std::get_if<Tensor>(&ids.value()) : nullptr;
  FQ_CHECK(
      tensor != nullptr && tensor->defined() &&
          (tensor->dtype() == DType::i64 || tensor->dtype() == DType::i32 || tensor->dtype() == DType::f32),
      kEmbedding, "the ids are {}: use i64, i32 or whole numbers in f32",
      tensor != nullptr ? tensor->describe() : "codes or undefined");
  FQ_CHECK(tensor->device() == table.device(), kEmbedding, "the ids are {}, the weight {}: use one device",
           tensor->describe(), table.describe());
  const Tensor given = tensor->to(Layout::row_major), out = given.to(DType::i64);
  // A network with one float input reads its ids as f32, where every whole number up to 2^24 is exact.
  if (given.dtype() == DType::f32)
    detail::run(out.device(), &detail::Kernels::check_whole, given, kEmbedding, "id");
  detail::run(out.device(), &detail::Kernels::check_indices, out, table.dim(0), std::optional<std::int64_t>(),
              kEmbedding, "id");
  return out;
}

}  // namespace

Variable embedding(const Variable& ids, const Variable& weight) {
  const auto w = detail::floats(weight, kEmbedding);
  FQ_CHECK(w.tensor.rank() == 2, kEmbedding, "the weight is {}: use [V, D]", to_string(w.tensor.shape()));
  const Tensor rows = checked_ids(ids, w.tensor);
  Shape shape = rows.shape();
  shape.push_back(w.tensor.dim(1));
  Tensor y = Tensor::empty(shape, w.tensor.dtype(), w.tensor.device());
  detail::run(y.device(), &detail::Kernels::gather_rows, rows, w.tensor, y);
  const auto backward = [saved = detail::Saved(rows), table = w.tensor.shape(),
                         ids_need_grad = ids.requires_grad()](const Tensor& dy) {
    Tensor dw = Tensor::empty(table, dy.dtype(), dy.device());
    // Rows with equal ids are summed in input order, so the bits do not depend on threads.
    detail::run(dw.device(), &detail::Kernels::sum_rows, saved.get(), dy.to(Layout::row_major), dw);
    // Ids have no gradient. They may be part of an input with a gradient, which then gets zeros.
    return std::vector<Tensor>{
        ids_need_grad ? Tensor::zeros(saved.get().shape(), DType::f32, dy.device()) : Tensor(), dw};
  };
  return detail::record(kEmbedding, y, {ids, w.variable}, backward);
}

}  // namespace fq::ops
