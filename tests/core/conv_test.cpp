#include "fakequant/core/ops/conv.h"

#include <gtest/gtest.h>

#include "core/products.h"
#include "fakequant/core/error.h"
#include "fakequant/core/trace.h"

namespace fq::conv_test {
namespace {

using ops::ConvOptions;
using test::difference;
using test::kRounding;
using test::uniform;

struct Case {
  Shape x, w;
  ConvOptions options;
};

const std::vector<Case> cases{
    {{2, 1, 8, 8}, {16, 1, 3, 3}, {{1}, {1}, {}, 1}},
    {{1, 3, 9, 7}, {5, 3, 3, 2}, {{2, 1}, {0, 2}, {}, 1}},
    {{5, 16, 6, 6}, {32, 16, 1, 1}, {}},
    {{3, 20, 11, 10}, {50, 20, 5, 5}, {{2}, {2}, {}, 1}},
    {{2, 8, 12, 12}, {8, 4, 3, 3}, {{1}, {2}, {2}, 2}},
    {{2, 12, 7, 7}, {12, 1, 3, 3}, {{1}, {1}, {}, 12}},
    {{4, 6, 5, 5}, {9, 2, 3, 3}, {{3}, {1}, {}, 3}},
    {{1, 1, 1, 1}, {1, 1, 1, 1}, {}},
    {{70, 32, 8, 8}, {48, 32, 3, 3}, {{1}, {1}, {}, 1}},
    {{2, 4, 4, 4}, {3, 4, 1, 1}, {{2}, {}, {}, 1}},
};

struct Gradients {
  Tensor y, dx, dw, db;
};

template <class F>
Gradients run(const F& f, const Shape& x_shape, const Shape& w_shape, std::int64_t out, DType dtype) {
  const Variable x(uniform(x_shape, 1, dtype), true), w(uniform(w_shape, 2, dtype), true);
  const Variable b(uniform({out}, 3, dtype), true);
  const Variable y = f(x, w, b);
  y.backward(uniform(y.shape(), 4, dtype));
  return {y.tensor(), x.grad(), w.grad(), b.grad()};
}

void expect_close(const Gradients& f, const Gradients& d, const Shape& w) {
  EXPECT_LT(difference(f.y, d.y), kRounding) << to_string(w);
  EXPECT_LT(difference(f.dx, d.dx), kRounding) << to_string(w);
  EXPECT_LT(difference(f.dw, d.dw), kRounding) << to_string(w);
  EXPECT_LT(difference(f.db, d.db), kRounding) << to_string(w);
}

TEST(Conv2d, F32AgreesWithLoopsInF64) {
  for (const auto& [x, w, options] : cases) {
    const auto f = [&options = options](const Variable& a, const Variable& b, const Variable& c) {
      return ops::conv2d(a, b, c, options);
    };
    expect_close(run(f, x, w, w[0], DType::f32), run(f, x, w, w[0], DType::f64), w);
  }
}

TEST(Conv2d, KnownNumbers) {
  const Variable x(Tensor::from({1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f, 7.0f, 8.0f, 9.0f}, {1, 1, 3, 3}));
  const Variable w(Tensor::from({1.0f, 10.0f, 100.0f, 1000.0f}, {1, 1, 2, 2}));
  const Variable y = ops::conv2d(x, w, Tensor::from({0.5f}));
  EXPECT_EQ(y.tensor().to_vector<float>(), (std::vector<float>{5421.5f, 6532.5f, 8754.5f, 9865.5f}));
  EXPECT_EQ(y.layout(), Layout::channels_last);
}

TEST(Conv2d, InputLayoutsAgree) {
  const Tensor x = uniform({2, 3, 5, 6}, 1);
  const Variable w(uniform({4, 3, 3, 3}, 2));
  EXPECT_TRUE(
      bitwise_equal(ops::conv2d(x, w).tensor(), ops::conv2d(x.to(Layout::channels_last), w).tensor()));
}

TEST(Conv2d, ForwardIsInvariantToThreadCount) {
  for (const auto& [x_shape, w_shape, options] : cases)
    for (const std::int64_t n : {std::int64_t{1}, std::int64_t{3}, x_shape[0]}) {
      const Variable x(uniform({n, x_shape[1], x_shape[2], x_shape[3]}, 5)), w(uniform(w_shape, 6));
      Tensor first;
      test::run_with_threads({1, 2, 3, 8}, [&, &options = options, &w_shape = w_shape](int count) {
        const Tensor y = ops::conv2d(x, w, {}, options).tensor();
        if (!first.defined()) first = y;
        EXPECT_TRUE(bitwise_equal(y, first))
            << to_string(x.shape()) << to_string(w_shape) << count << " threads";
      });
    }
}

TEST(Conv2d, EmptyBatch) {
  const auto f = [](const Variable& a, const Variable& b, const Variable& c) { return ops::conv2d(a, b, c); };
  const auto g = run(f, {0, 2, 4, 4}, {3, 2, 3, 3}, 3, DType::f32);
  EXPECT_EQ(g.y.shape(), (Shape{0, 3, 2, 2}));
  EXPECT_EQ(g.dw.to_vector<float>(), std::vector<float>(54));
}

TEST(Conv2d, InfersShapesOnMeta) {
  const auto meta = [](Shape shape) {
    return Variable(Tensor::empty(std::move(shape), DType::f32, Device::meta()));
  };
  const Variable y = ops::conv2d(meta({4, 2, 9, 9}), meta({6, 1, 3, 3}), meta({6}), {{2}, {1}, {}, 2});
  EXPECT_EQ(y.shape(), (Shape{4, 6, 5, 5}));
  EXPECT_EQ(y.layout(), Layout::channels_last);
}

TEST(Conv2d, SkipsTheInputGradientUnlessRequired) {
  const Variable x(uniform({2, 3, 5, 5}, 1)), w(uniform({4, 3, 3, 3}, 2), true);
  const Variable y = ops::conv2d(x, w);
  y.backward(uniform(y.shape(), 3));
  EXPECT_TRUE(w.grad().defined());
  EXPECT_FALSE(x.grad().defined());
}

TEST(Conv2d, RejectsMismatchedShapes) {
  const Variable x(uniform({2, 4, 5, 5}, 1)), w(uniform({6, 4, 3, 3}, 2));
  const auto expect_error = [&](const Shape& w_shape, const ConvOptions& options) {
    EXPECT_THROW((void)ops::conv2d(x, uniform(w_shape, 2), {}, options), ArgumentError);
  };
  expect_error({6, 3, 3, 3}, {});
  expect_error({6, 4, 3}, {});
  expect_error({6, 4, 3, 3}, {{}, {}, {}, 2});
  expect_error({6, 1, 3, 3}, {{}, {}, {}, 4});
  expect_error({6, 4, 3, 3}, {{}, {}, {}, 0});
  expect_error({6, 4, 3, 3}, {{}, {-1}, {}, 1});
  expect_error({6, 4, 3, 3}, {{0}, {}, {}, 1});
  expect_error({6, 4, 3, 3}, {{}, {}, {0}, 1});
  expect_error({6, 4, 3, 3}, {{1, 1, 1}, {}, {}, 1});
  expect_error({6, 4, 6, 3}, {});
  expect_error({6, 4, 3, 3}, {{}, {}, {3}, 1});
  EXPECT_THROW((void)ops::conv2d(x, w, Variable(uniform({4}, 3))), ArgumentError);
  EXPECT_THROW((void)ops::conv2d(Variable(uniform({4, 5, 5}, 1)), w), ArgumentError);
}

TEST(Conv2d, ReportsToTheTrace) {
  Recorder recorder;
  const RecordScope scope(recorder);
  const auto graph =
      recorder.finish(ops::conv2d(uniform({2, 4, 5, 5}, 1), uniform({6, 2, 3, 3}, 2), {}, {{2}, {1}, {}, 2}));
  const auto& node = graph.nodes.at(0);
  EXPECT_EQ(node.op, "conv2d");
  EXPECT_EQ(node.attribute<std::vector<std::int64_t>>("stride"), (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(node.attribute<std::int64_t>("groups"), 2);
  EXPECT_EQ(node.inputs.at(2), -1);
}

TEST(Conv1d, F32AgreesWithLoopsInF64) {
  const std::vector<Case> lines{{{2, 3, 20}, {4, 3, 5}, {{2}, {2}, {}, 1}},
                                {{3, 8, 9}, {8, 1, 3}, {{1}, {2}, {2}, 8}}};
  for (const auto& [x, w, options] : lines) {
    const auto f = [&options = options](const Variable& a, const Variable& b, const Variable& c) {
      return ops::conv1d(a, b, c, options);
    };
    const auto g = run(f, x, w, w[0], DType::f32);
    expect_close(g, run(f, x, w, w[0], DType::f64), w);
    EXPECT_EQ(g.y.layout(), Layout::row_major);
  }
}

}  // namespace
}  // namespace fq::conv_test
