#include <algorithm>
#include <functional>

#include <gtest/gtest.h>

#include "fakequant/core/ops/activation.h"
#include "fakequant/core/ops/quantize.h"
#include "fakequant/core/ops/shape.h"

/// Moving unrounded sums does not change how they are rounded: for every
/// kind of sums and every move, requantize(move(sums)) == move(requantize(sums)), with masks and gradients.

namespace fq::moved_sums_test {
namespace {

const Shape image{3, 6, 5, 7};

Tensor sums(const Shape& shape, std::int64_t range, std::int64_t seed = 0) {
  Tensor out = Tensor::empty(shape, DType::i32);
  auto* v = out.mutable_data<std::int32_t>();
  for (std::int64_t i = 0; i < out.numel(); ++i)
    v[i] = static_cast<std::int32_t>((i + seed) * 1103515245 % (2 * range + 1) - range);
  return out;
}

Tensor floats(const Shape& shape, float least, float most) {
  Tensor out = Tensor::empty(shape);
  auto* v = out.mutable_data<float>();
  for (std::int64_t i = 0; i < out.numel(); ++i)
    v[i] = least + (most - least) * static_cast<float>(i * 7919 % 1009) / 1009.0f;
  return out;
}

QuantizedTensor codes(Layout layout, double amax) {
  const auto grid = Grid::from_amax(IntFormat{}, {}, Tensor::scalar(amax), "in");
  return quantize(floats(image, -1.5f, 1.5f).to(layout), grid, false);
}

struct Kind {
  std::string name;
  Accumulator sums;
};

std::vector<Kind> kinds() {
  std::vector<Kind> out;
  for (const Layout layout : {Layout::row_major, Layout::channels_last}) {
    const Tensor x = sums(image, 20000).to(layout);
    const ProductSums product{x, sums({6}, 900), floats({6}, 1e-5f, 2e-4f), 1};
    const NormalizedSums normalized{x, floats({6}, -1e-4f, 2e-4f), floats({6}, -0.5f, 0.7f), 1};
    NormalizedSums biased = normalized;
    biased.bias = sums({6}, 900);
    out.push_back({"product", {product}});
    out.push_back({"normalized", {normalized}});
    out.push_back({"normalized with a bias", {biased}});
    out.push_back({"pooled", {PooledSums{sums(image, 6000).to(layout), Tensor::scalar(0.0137), 49}}});
    out.push_back({"averages", {Averages{floats(image, -2.0f, 2.0f).to(layout)}}});
    out.push_back({"addition", {CodeAddition{codes(layout, 0.9), codes(layout, 0.7)}}});
    const auto part = [&](bool relu) { return Accumulator{product, relu}; };
    out.push_back({"concat", {AccumulatorConcat{{part(false), {normalized}}, 1}}});
    out.push_back({"concat of ReLUs", {AccumulatorConcat{{part(true), {normalized}, part(false)}, 1}}});
  }
  return out;
}

using Operator = std::function<Variable(const Variable&)>;

struct Moving {
  std::string name;
  Operator apply;
};

/// Through which channels of groups are interleaved.
Variable shuffle(const Variable& x) {
  const Shape s = x.shape();
  const Variable groups = ops::reshape(x, {s[0], 3, s[1] / 3, s[2], s[3]});
  return ops::reshape(ops::transpose(groups, {0, 2, 1, 3, 4}), s);
}

std::vector<Moving> moves() {
  std::vector<Moving> out{
      {"flatten", [](const Variable& x) { return ops::flatten(x); }},
      {"reshape",
       [](const Variable& x) {
         return ops::reshape(x, {5, -1, 9});
       }},
      {"there and back", [](const Variable& x) { return ops::reshape(ops::flatten(x), x.shape()); }},
      {"shuffle", shuffle},
      {"split and joined",
       [](const Variable& x) {
         return ops::concat({ops::slice(x, 1, 4, 6), ops::slice(x, 1, 0, 4)}, 1);
       }},
      {"joined along rows",
       [](const Variable& x) {
         return ops::concat({x, ops::slice(x, 2, 1, 4)}, 2);
       }},
      {"transposed slice", [](const Variable& x) {
         return ops::transpose(ops::slice(ops::flatten(x), 1, 5, 98), {1, 0});
       }}};
  std::vector<int> axes{0, 1, 2, 3};
  do {
    std::string name = "transpose";
    for (const int axis : axes) name += ' ' + std::to_string(axis);
    out.push_back({name, [axes](const Variable& x) { return ops::transpose(x, axes); }});
  } while (std::next_permutation(axes.begin(), axes.end()));
  for (int axis = 0; axis < 4; ++axis)
    for (const auto& [begin, end] : {std::pair{0, 1}, {1, 3}, {1, 1}, {2, 3}})
      out.push_back(
          {"slice " + std::to_string(axis) + " from " + std::to_string(begin),
           [axis, begin = begin, end = end](const Variable& x) { return ops::slice(x, axis, begin, end); }});
  return out;
}

/// Source index of each element, found by moving the indices as floats.
std::vector<float> sources(const Operator& move, const Shape& shape) {
  Tensor numbers = Tensor::empty(shape);
  for (std::int64_t i = 0; i < numbers.numel(); ++i) numbers.mutable_data<float>()[i] = static_cast<float>(i);
  return move(Variable(numbers)).tensor().to_vector<float>();
}

/// dy[i] = i + 1 in logical order.
Tensor counted(const Variable& y) {
  Tensor out = Tensor::empty(y.shape());
  for (std::int64_t i = 0; i < out.numel(); ++i) out.mutable_data<float>()[i] = static_cast<float>(i + 1);
  return out.to(y.layout());
}

std::vector<float> bits(const Tensor& mask) {
  return apply_mask(Tensor::full(mask.shape(), 1.0).to(mask.layout()), mask).to_vector<float>();
}

std::vector<Grid> readers() {
  std::vector<Grid> out;
  for (const bool is_unsigned : {false, true})
    out.push_back(Grid::from_amax(IntFormat{8, is_unsigned, false}, {}, Tensor::scalar(1.3), "out"));
  out.push_back(out.front());
  out.back().pass_through_bwd = true;
  return out;
}

/// Gradient that the mask of the elements' own reader passes from the gradients of their copies.
std::vector<float> expected_gradient(const std::vector<float>& from, const std::vector<float>& mask) {
  std::vector<float> out(mask.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    const auto source = static_cast<std::size_t>(from[i]);
    out[source] += static_cast<float>(i + 1) * mask[source];
  }
  return out;
}

void expect_same_codes(const Accumulator& x, const Moving& move, const Grid& grid, const std::string& where) {
  Variable leaf(x);
  leaf.set_requires_grad(true);
  const Variable y = ops::quantize(move.apply(leaf), grid);
  const auto from = sources(move.apply, x.shape());
  Variable own(x);
  own.set_requires_grad(true);
  const Variable direct = ops::quantize(own, grid);
  const auto q = code_values(*y.quantized()).to_vector<float>();
  const auto expected = code_values(*direct.quantized()).to_vector<float>();
  ASSERT_EQ(q.size(), from.size()) << where;
  for (std::size_t i = 0; i < q.size(); ++i)
    ASSERT_EQ(q[i], expected[static_cast<std::size_t>(from[i])]) << where << " element " << i;
  const Tensor mask = direct.quantized()->mask;
  const auto passed =
      mask.defined() ? bits(mask) : std::vector<float>(static_cast<std::size_t>(numel(x.shape())), 1.0f);
  y.backward(counted(y));
  EXPECT_EQ(leaf.grad().to_vector<float>(), expected_gradient(from, passed)) << where;
}

void expect_same_floats(const Accumulator& x, const Moving& move, const std::string& where) {
  Variable leaf(x);
  leaf.set_requires_grad(true);
  const Variable moved = move.apply(leaf), y = moved.as_float();
  const auto from = sources(move.apply, x.shape());
  Tensor mask;
  const auto expected = to_float(x, &mask).to_vector<float>(), values = y.tensor().to_vector<float>();
  ASSERT_EQ(values.size(), from.size()) << where;
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(values[i], expected[static_cast<std::size_t>(from[i])]) << where << " element " << i;
  EXPECT_EQ(moved.layout(), y.layout()) << where;
  const auto passed = mask.defined() ? bits(mask) : std::vector<float>(expected.size(), 1.0f);
  y.backward(counted(y));
  EXPECT_EQ(leaf.grad().to_vector<float>(), expected_gradient(from, passed)) << where;
}

/// Calls f(sums, move, where) for all combinations, with and without a ReLU after the layer.
template <class F>
void run_all(F&& f) {
  for (const auto& kind : kinds())
    for (const auto& move : moves())
      for (const bool relu : {false, true}) {
        Accumulator x = kind.sums;
        x.relu = relu;
        f(x, move, kind.name + ' ' + std::string(name(x.layout())) + ' ' + move.name + (relu ? " relu" : ""));
      }
}

TEST(MovedSums, StaySums) {
  run_all([](const Accumulator& x, const Moving& move, const std::string& where) {
    EXPECT_NE(move.apply(Variable(x)).accumulator(), nullptr) << where;
  });
}

TEST(MovedSums, RoundLikeUnmovedSums) {
  for (const auto& grid : readers())
    run_all([&](const Accumulator& x, const Moving& move, const std::string& where) {
      expect_same_codes(x, move, grid, where + (grid.pass_through_bwd ? " through" : ""));
    });
}

TEST(MovedSums, MatchTheFloatsOfTheSums) {
  run_all([](const Accumulator& x, const Moving& move, const std::string& where) {
    expect_same_floats(x, move, where);
  });
}

TEST(MovedSums, AcceptALaterReLU) {
  for (const auto& grid : readers())
    for (const auto& kind : kinds())
      for (const auto& move : moves()) {
        Accumulator before = kind.sums;
        before.relu = true;
        const auto early = ops::quantize(move.apply(Variable(before)), grid);
        const auto late = ops::quantize(ops::relu(move.apply(Variable(kind.sums))), grid);
        EXPECT_TRUE(bitwise_equal(early.quantized()->codes, late.quantized()->codes))
            << kind.name << ' ' << move.name;
      }
}

TEST(MovedSums, HaveShapesOnMeta) {
  const Accumulator x{ProductSums{Tensor::empty(image, DType::i32, Device::meta(), Layout::channels_last),
                                  {},
                                  Tensor::empty({}, DType::f32, Device::meta()),
                                  1},
                      true};
  const auto grid = Grid::from_amax(IntFormat{}, {}, Tensor::scalar(1.3), "out").to(Device::meta());
  for (const auto& move : moves()) {
    const Variable y = move.apply(Variable(x));
    const auto from = sources(move.apply, image);
    const auto q = requantize(*y.accumulator(), grid);
    EXPECT_EQ(numel(y.shape()), static_cast<std::int64_t>(from.size())) << move.name;
    EXPECT_EQ(q.codes.shape(), y.shape()) << move.name;
    EXPECT_EQ(q.mask.shape(), y.shape()) << move.name;
    EXPECT_EQ(to_float(*y.accumulator()).shape(), y.shape()) << move.name;
  }
}

}  // namespace
}  // namespace fq::moved_sums_test
