#include "fakequant/core/ops/linear.h"

#include <gtest/gtest.h>

#include "core/products.h"
#include "fakequant/core/error.h"
#include "fakequant/core/trace.h"

namespace fq::linear_test {
namespace {

using test::difference;
using test::kRounding;
using test::uniform;

struct Gradients {
  Tensor y, dx, dw, db;
};

Gradients run_linear(const Shape& x_shape, std::int64_t out, DType dtype) {
  const Variable x(uniform(x_shape, 1, dtype), true), w(uniform({out, x_shape.back()}, 2, dtype), true);
  const Variable b(uniform({out}, 3, dtype), true);
  const Variable y = ops::linear(x, w, b);
  y.backward(uniform(y.shape(), 4, dtype));
  return {y.tensor(), x.grad(), w.grad(), b.grad()};
}

TEST(Linear, F32AgreesWithLoopsInF64) {
  for (const Shape& shape :
       {Shape{1, 1}, Shape{7, 5}, Shape{3}, Shape{2, 3, 19}, Shape{1, 700}, Shape{260, 333}})
    for (const std::int64_t out : {1, 10, 300}) {
      const auto f = run_linear(shape, out, DType::f32), d = run_linear(shape, out, DType::f64);
      EXPECT_LT(difference(f.y, d.y), kRounding) << to_string(shape) << out;
      EXPECT_LT(difference(f.dx, d.dx), kRounding) << to_string(shape) << out;
      EXPECT_LT(difference(f.dw, d.dw), kRounding) << to_string(shape) << out;
      EXPECT_LT(difference(f.db, d.db), kRounding) << to_string(shape) << out;
    }
}

TEST(Linear, ForwardIsInvariantToThreadCount) {
  for (const auto& mnk : {std::array{1, 1000, 4000}, {4, 10, 5000}, {513, 257, 700}, {64, 1024, 784}}) {
    const Variable x(uniform({mnk[0], mnk[2]}, 5)), w(uniform({mnk[1], mnk[2]}, 6));
    Tensor first;
    test::run_with_threads({1, 2, 3, 8}, [&](int count) {
      const Tensor y = ops::linear(x, w).tensor();
      if (!first.defined()) first = y;
      EXPECT_TRUE(bitwise_equal(y, first)) << testing::PrintToString(mnk) << ", " << count << " threads";
    });
  }
}

TEST(Linear, EmptyBatch) {
  const auto g = run_linear({0, 5}, 3, DType::f32);
  EXPECT_EQ(g.y.shape(), (Shape{0, 3}));
  EXPECT_EQ(g.dx.shape(), (Shape{0, 5}));
  EXPECT_EQ(g.dw.to_vector<float>(), std::vector<float>(15));
}

TEST(Linear, InfersShapesOnMeta) {
  const Variable x(Tensor::empty({4, 2, 6}, DType::f32, Device::meta()));
  const Variable y = ops::linear(x, Variable(Tensor::empty({3, 6}, DType::f32, Device::meta())));
  EXPECT_EQ(y.shape(), (Shape{4, 2, 3}));
  EXPECT_TRUE(y.device().is_meta());
}

TEST(Linear, RejectsMismatchedShapes) {
  const Variable x(uniform({4, 6}, 1)), w(uniform({3, 6}, 2));
  EXPECT_THROW((void)ops::linear(x, Variable(uniform({3, 5}, 2))), ArgumentError);
  EXPECT_THROW((void)ops::linear(x, Variable(uniform({3, 6, 1}, 2))), ArgumentError);
  EXPECT_THROW((void)ops::linear(x, w, Variable(uniform({6}, 2))), ArgumentError);
  EXPECT_THROW((void)ops::linear(x, Variable(uniform({3, 6}, 2, DType::f64))), ArgumentError);
  EXPECT_THROW((void)ops::linear(x, w, Variable(uniform({3}, 2, DType::f64))), ArgumentError);
  EXPECT_THROW((void)ops::linear(Variable(Tensor::scalar(1)), w), ArgumentError);
}

TEST(Linear, BackwardRejectsAChangedWeight) {
  const Variable x(uniform({4, 6}, 1), true);
  Variable w(uniform({3, 6}, 2));
  const Variable y = ops::linear(x, w);
  w.mutable_tensor().mutable_data<float>()[0] = 5.0f;
  EXPECT_THROW(y.backward(uniform({4, 3}, 3)), ArgumentError);
}

TEST(Linear, ReportsToTheTrace) {
  Recorder recorder;
  const RecordScope scope(recorder);
  const Variable x(uniform({4, 6}, 1));
  const auto graph = recorder.finish(ops::linear(x, Variable(uniform({3, 6}, 2))));
  ASSERT_EQ(graph.nodes.size(), 1u);
  EXPECT_EQ(graph.nodes[0].op, "linear");
  EXPECT_EQ(graph.nodes[0].inputs.size(), 3u);
  EXPECT_EQ(graph.nodes[0].inputs[2], -1);
}

Gradients run_matmul(const Shape& a_shape, const Shape& b_shape, DType dtype) {
  const Variable a(uniform(a_shape, 1, dtype), true), b(uniform(b_shape, 2, dtype), true);
  const Variable y = ops::matmul(a, b);
  y.backward(uniform(y.shape(), 4, dtype));
  return {y.tensor(), a.grad(), b.grad(), {}};
}

TEST(Matmul, F32AgreesWithLoopsInF64) {
  const std::vector<std::pair<Shape, Shape>> cases{
      {{3, 4}, {4, 5}}, {{2, 3, 4}, {4, 5}}, {{2, 3, 4}, {2, 4, 5}}, {{2, 3, 70, 90}, {2, 3, 90, 80}}};
  for (const auto& [a, b] : cases) {
    const auto f = run_matmul(a, b, DType::f32), d = run_matmul(a, b, DType::f64);
    EXPECT_LT(difference(f.y, d.y), kRounding) << to_string(a);
    EXPECT_LT(difference(f.dx, d.dx), kRounding) << to_string(a);
    EXPECT_LT(difference(f.dw, d.dw), kRounding) << to_string(a);
  }
}

TEST(Matmul, RejectsMismatchedShapes) {
  EXPECT_THROW((void)ops::matmul(uniform({3, 4}, 1), uniform({3, 4}, 1)), ArgumentError);
  EXPECT_THROW((void)ops::matmul(uniform({2, 3, 4}, 1), uniform({3, 4, 5}, 1)), ArgumentError);
  EXPECT_THROW((void)ops::matmul(uniform({4}, 1), uniform({4, 5}, 1)), ArgumentError);
}

}  // namespace
}  // namespace fq::linear_test
