#include "fakequant/core/ops/shape.h"

#include <numeric>

#include <gtest/gtest.h>

#include "core/gradient_check.h"
#include "fakequant/core/error.h"
#include "fakequant/core/ops/elementwise.h"
#include "fakequant/core/ops/quantize.h"

namespace fq::shape_test {
namespace {

const Shape image{2, 3, 2, 2};

Tensor counted(const Shape& shape) {
  std::vector<float> values(static_cast<std::size_t>(numel(shape)));
  std::iota(values.begin(), values.end(), 0.0f);
  return Tensor::from(values, shape);
}
Grid int8(double amax) { return Grid::from_amax(IntFormat{}, {}, Tensor::scalar(amax)); }
QuantizedTensor codes(double amax = 127.0) {
  return quantize(counted(image).to(Layout::channels_last), int8(amax));
}
Accumulator sums() {
  return {ProductSums{counted(image).to(DType::i32).to(Layout::channels_last), Tensor::from({1, 2, 3}),
                      Tensor::from({0.5f, 0.25f, 2.0f}), 1},
          true};
}
std::vector<float> values(const Variable& x) { return x.tensor().to_vector<float>(); }

TEST(Reshape, IsAViewOfARowMajorTensor) {
  const Tensor x = counted({2, 6});
  const Variable y = ops::reshape(x, {3, -1});
  EXPECT_EQ(y.shape(), (Shape{3, 4}));
  EXPECT_TRUE(y.tensor().storage().shares(x.storage()));
}

TEST(Reshape, RejectsMismatchedShapes) {
  const Variable x = counted({2, 6});
  EXPECT_THROW((void)ops::reshape(x, {5}), ArgumentError);
  EXPECT_THROW((void)ops::reshape(x, {-1, -1}), ArgumentError);
  EXPECT_THROW((void)ops::reshape(x, {-2, -6}), ArgumentError);
  EXPECT_THROW((void)ops::reshape(x, {5, -1}), ArgumentError);
  EXPECT_THROW((void)ops::flatten(x, 2), ArgumentError);
  EXPECT_THROW((void)ops::flatten(Variable(Tensor::scalar(1.0))), ArgumentError);
}

TEST(Flatten, MovesCodesIntoLogicalOrder) {
  const Variable y = ops::flatten(Variable(codes()));
  ASSERT_NE(y.quantized(), nullptr);
  EXPECT_EQ(y.shape(), (Shape{2, 12}));
  EXPECT_EQ(values(y), counted(image).to_vector<float>());
  EXPECT_TRUE(same_grid(y.quantized()->grid, codes().grid));
}

TEST(Flatten, KeepsSumsAndTheirRoundedCodes) {
  const Variable y = ops::flatten(Variable(sums()));
  ASSERT_NE(y.accumulator(), nullptr);
  const auto flat = requantize(*y.accumulator(), int8(20.0)), whole = requantize(sums(), int8(20.0));
  EXPECT_EQ(flat.codes.to_vector<std::int8_t>(), whole.codes.to_vector<std::int8_t>());
  EXPECT_EQ(values(y), to_float(sums()).to_vector<float>());
  const Variable back = ops::reshape(y, image);
  EXPECT_TRUE(std::holds_alternative<ProductSums>(back.accumulator()->value));
  EXPECT_TRUE(back.accumulator()->relu);
}

TEST(Flatten, CodeGradientsPassThroughTheQuantizerMask) {
  const Variable x(counted(image).to(Layout::channels_last), true);
  ops::flatten(ops::quantize(x, int8(20.0))).backward(Tensor::full({2, 12}, 1.0));
  const auto dx = x.grad().to_vector<float>();
  for (std::size_t i = 0; i < dx.size(); ++i) EXPECT_EQ(dx[i], i <= 20 ? 1.0f : 0.0f);
}

TEST(Transpose, MovesCodes) {
  const Variable y = ops::transpose(Variable(codes()), {0, 2, 3, 1});
  ASSERT_NE(y.quantized(), nullptr);
  EXPECT_EQ(y.shape(), (Shape{2, 2, 2, 3}));
  EXPECT_EQ(values(y)[1], 4.0f);
}

TEST(Transpose, RejectsInvalidPermutations) {
  const Variable x = counted({2, 3});
  EXPECT_THROW((void)ops::transpose(x, {0}), ArgumentError);
  EXPECT_THROW((void)ops::transpose(x, {0, 0}), ArgumentError);
  EXPECT_THROW((void)ops::transpose(x, {0, 2}), ArgumentError);
}

TEST(Concat, KeepsCodesOfOneGrid) {
  const Variable x{codes()};
  const Variable y = ops::concat({x, x}, 1);
  ASSERT_NE(y.quantized(), nullptr);
  EXPECT_EQ(y.shape(), (Shape{2, 6, 2, 2}));
  EXPECT_EQ(values(y)[12], 0.0f);
  EXPECT_EQ(ops::concat({x, Variable(codes(64.0))}, 1).quantized(), nullptr);
}

TEST(Concat, RoundsSumsToOneGrid) {
  const Variable x{sums()};
  const Variable y = ops::concat({x, x}, 1);
  ASSERT_NE(y.accumulator(), nullptr);
  const auto joined = requantize(*y.accumulator(), int8(20.0)).codes.to_vector<std::int8_t>();
  const auto one = requantize(sums(), int8(20.0)).codes.to_vector<std::int8_t>();
  EXPECT_TRUE(std::equal(one.begin(), one.begin() + 12, joined.begin()));
  EXPECT_TRUE(std::equal(one.begin(), one.begin() + 12, joined.begin() + 12));
}

TEST(Concat, RejectsMismatchedShapes) {
  const Variable x = counted({2, 3});
  EXPECT_THROW((void)ops::concat({}, 0), ArgumentError);
  EXPECT_THROW((void)ops::concat({x, counted({2, 2})}, 0), ArgumentError);
  EXPECT_THROW((void)ops::concat({x, counted({2, 3, 1})}, 0), ArgumentError);
  EXPECT_THROW((void)ops::concat({x, x}, 2), ArgumentError);
  EXPECT_THROW((void)ops::concat({x, x.tensor().to(DType::f64)}, 0), ArgumentError);
}

TEST(Slice, CountsFromBothEnds) {
  const Variable x = counted({2, 4});
  EXPECT_EQ(values(ops::slice(x, 1, 1, 3)), (std::vector<float>{1, 2, 5, 6}));
  EXPECT_EQ(values(ops::slice(x, -1, -2, 4)), (std::vector<float>{2, 3, 6, 7}));
  EXPECT_EQ(ops::slice(x, 0, 1, 1).shape(), (Shape{0, 4}));
  EXPECT_THROW((void)ops::slice(x, 1, 3, 2), ArgumentError);
  EXPECT_THROW((void)ops::slice(x, 1, 0, 5), ArgumentError);
  EXPECT_THROW((void)ops::slice(x, 1, -5, 2), ArgumentError);
}

TEST(Add, AddsCodeTensorsInOrder) {
  const Variable a{codes(127.0)}, b{quantize(counted(image), int8(50.0))};
  const Variable y = ops::add(a, b);
  ASSERT_NE(y.accumulator(), nullptr);
  const auto& sum = std::get<CodeAddition>(y.accumulator()->value);
  EXPECT_EQ(sum.b.layout(), sum.a.layout());
  const auto x = values(a), z = values(b), got = values(y);
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], x[i] + z[i]);
  EXPECT_EQ(ops::add(a, Variable(Tensor::full({1}, 1.0))).accumulator(), nullptr);
}

TEST(Add, RejectsMismatchedShapes) {
  EXPECT_THROW((void)ops::add(counted({2, 3}), counted({2, 2})), ArgumentError);
  EXPECT_THROW((void)ops::multiply(counted({2}), counted({2}).to(DType::f64)), ArgumentError);
  EXPECT_THROW((void)ops::add(counted({2}), Variable()), ArgumentError);
}

}  // namespace
}  // namespace fq::shape_test
