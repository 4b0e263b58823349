#include "fakequant/core/ops/linear.h"

#include "fakequant/core/check.h"
#include "fakequant/core/ops/code_gradients.h"
#include "fakequant/core/ops/code_products.h"
#include "fakequant/core/ops/exact_products.h"
#include "fakequant/core/ops/products.h"
#include "fakequant/core/profile.h"

namespace fq::ops {
namespace {

using detail::Saved;

struct LinearShape {
  std::int64_t rows, in, out;
  Shape x, y;

  static LinearShape of(const Variable& x, const Variable& w) {
    FQ_CHECK(x.rank() >= 1 && w.rank() == 2, "linear",
             "the input is {}, the weight {}: give [.., in] and [out, in]", to_string(x.shape()),
             to_string(w.shape()));
    LinearShape s{1, w.dim(1), w.dim(0), x.shape(), x.shape()};
    FQ_CHECK(s.x.back() == s.in, "linear", "the input {} has {} features, the weight {} takes {}",
             to_string(s.x), s.x.back(), to_string(w.shape()), s.in);
    s.y.back() = s.out;
    s.rows = numel(Shape(s.x.begin(), s.x.end() - 1));
    return s;
  }
};

Tensor linear_dx(const LinearShape& s, const Tensor& dy, const Tensor& w) {
  const ProfileScope profile("dX");
  Tensor dx = Tensor::empty(s.x, detail::product_dtype(dy), dy.device());
  detail::multiply({dy, s.rows, s.out}, {w, s.out, s.in}, dx, 1, cpu::Sharing::by_threads);
  return dx;
}

Tensor linear_dw(const LinearShape& s, const Tensor& dy, const Tensor& x) {
  const ProfileScope profile("dW");
  Tensor dw = Tensor::empty({s.out, s.in}, detail::product_dtype(dy), dy.device());
  detail::multiply({dy, s.out, s.rows, true}, {x, s.rows, s.in}, dw, 1, cpu::Sharing::by_threads);
  return dw;
}

struct Needs {
  bool x, w, bias;
  Needs(const Variable& a, const Variable& b, const Variable& c)
      : x(a.requires_grad()), w(b.requires_grad()), bias(c.requires_grad()) {}
};

Variable linear_of_floats(const LinearShape& s, const Variable& x, const Variable& w, const Variable& bias) {
  const Tensor a = x.tensor().to(Layout::row_major), b = w.tensor();
  detail::check_factors(a, b, "linear");
  Tensor y = Tensor::empty(s.y, a.dtype(), a.device());
  detail::multiply({a, s.rows, s.in}, {b, s.in, s.out, true}, y);
  detail::add_bias(y, bias);
  const Saved saved_a(a), saved_b(b);
  return detail::record("linear", std::move(y), {x, w, bias},
                        [s, saved_a, saved_b, needs = Needs(x, w, bias)](const Tensor& gradient) {
                          const Tensor dy = gradient.to(Layout::row_major);
                          return std::vector<Tensor>{
                              needs.x ? linear_dx(s, dy, saved_b.get()) : Tensor{},
                              needs.w ? linear_dw(s, dy, saved_a.get()) : Tensor{},
                              needs.bias ? detail::bias_gradient(dy, s.out) : Tensor{}};
                        });
}

Value integer_value(const LinearShape& s, const QuantizedTensor& x, const QuantizedTensor& w,
                    const Variable& bias) {
  const std::int64_t largest = detail::largest_sum(x, w, s.in, "linear");
  Tensor sums = Tensor::empty(s.y, DType::i32, x.codes.device());
  if (!sums.device().is_meta()) {
    const Tensor codes = x.codes.to(Layout::row_major);
    detail::exact_gemm(s.rows, s.out, s.in, detail::codes_of(x, codes), detail::codes_of(w, w.codes), sums);
  }
  return detail::product_sums(std::move(sums), x, w, bias, 0, static_cast<int>(s.y.size()) - 1, largest);
}

Value factor_value(const LinearShape& s, const QuantizedTensor& x, const QuantizedTensor& w,
                   const Variable& bias) {
  const DType type = detail::code_factor_dtype(x.codes.device());
  const Tensor a = detail::code_factor(x, -1, type).to(Layout::row_major),
               b = detail::code_factor(w, 0, type);
  Tensor y = Tensor::empty(s.y, DType::f32, a.device());
  detail::multiply({a, s.rows, s.in}, {b, s.in, s.out, true}, y);
  detail::scale_products(y, detail::product_scale(x, w, 0, s.out), bias);
  return y;
}

Variable linear_of_codes(const LinearShape& s, detail::CodeKind kind, const Variable& x, const Variable& w,
                         const Variable& bias) {
  const QuantizedTensor &a = *x.quantized(), &b = *w.quantized();
  FQ_CHECK(a.codes.device() == b.codes.device(), "linear",
           "the input is on {}, the weight on {}: give both on one device", to_string(a.codes.device()),
           to_string(b.codes.device()));
  Value y = kind == detail::CodeKind::integers ? integer_value(s, a, b, bias) : factor_value(s, a, b, bias);
  return detail::record(
      "linear", std::move(y), {x, w, bias},
      [s, codes = detail::CodeGradients(a, b, 0), needs = Needs(x, w, bias)](const Tensor& gradient) {
        const Tensor rows = gradient.to(Layout::row_major), dy = codes.dy(rows);
        std::vector<Tensor> out(3);
        if (needs.x) out[0] = linear_dx(s, dy, codes.w());
        if (needs.w) codes.finish_dw(out[1] = linear_dw(s, dy, codes.x().to(Layout::row_major)));
        if (needs.bias) out[2] = detail::bias_gradient(rows, s.out);
        return out;
      });
}

}  // namespace

Variable linear(const Variable& x, const Variable& w, const Variable& bias) {
  const ProfileScope profile("product", "forward");
  const LinearShape s = LinearShape::of(x, w);
  detail::check_bias(bias, s.out, x, "linear");
  const detail::CodeKind kind = detail::code_kind(x, w, 0);
  if (kind != detail::CodeKind::floats) return linear_of_codes(s, kind, x, w, bias);
  return linear_of_floats(s, x.as_float(), w.as_float(), bias);
}

Variable matmul(const Variable& left, const Variable& right) {
  const ProfileScope profile("product", "forward");
  const Variable a = left.as_float(), b = right.as_float();
  FQ_CHECK(a.rank() >= 2 && b.rank() >= 2 && a.dim(-1) == b.dim(-2), "matmul",
           "{} times {}: give [.., m, k] and [k, n]", to_string(a.shape()), to_string(b.shape()));
  const Tensor x = a.tensor().to(Layout::row_major), y = b.tensor().to(Layout::row_major);
  detail::check_factors(x, y, "matmul");
  const std::int64_t k = b.dim(-2), n = b.dim(-1);
  Shape shape = a.shape();
  shape.back() = n;
  std::int64_t batch = 1, m = numel(Shape(shape.begin(), shape.end() - 1));
  if (b.rank() > 2) {
    FQ_CHECK(Shape(shape.begin(), shape.end() - 2) == Shape(y.shape().begin(), y.shape().end() - 2), "matmul",
             "{} times {}: the leading sizes must be the same", to_string(a.shape()), to_string(b.shape()));
    batch = numel(Shape(shape.begin(), shape.end() - 2));
    m = a.dim(-2);
  }
  Tensor z = Tensor::empty(shape, x.dtype(), x.device());
  detail::multiply({x, m, k}, {y, k, n}, z, batch);
  const Saved saved_x(x), saved_y(y);
  const bool need_a = a.requires_grad(), need_b = b.requires_grad();
  return detail::record("matmul", std::move(z), {a, b}, [=](const Tensor& dy) {
    std::vector<Tensor> gradients(2);
    const Tensor rows = dy.to(Layout::row_major);
    if (need_a) {
      gradients[0] = Tensor::empty(saved_x.get().shape(), rows.dtype(), rows.device());
      detail::multiply({rows, m, n}, {saved_y.get(), n, k, true}, gradients[0], batch);
    }
    if (need_b) {
      gradients[1] = Tensor::empty(saved_y.get().shape(), rows.dtype(), rows.device());
      detail::multiply({saved_x.get(), k, m, true}, {rows, m, n}, gradients[1], batch);
    }
    return gradients;
  });
}

}  // namespace fq::ops
