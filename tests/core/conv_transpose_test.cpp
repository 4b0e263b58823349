#include <gtest/gtest.h>

#include "core/products.h"
#include "fakequant/core/error.h"
#include "fakequant/core/ops/conv.h"
#include "fakequant/core/trace.h"

namespace fq::conv_transpose_test {
namespace {

using ops::ConvOptions;
using test::difference;
using test::kRounding;
using test::uniform;

struct Case {
  Shape x, w;
  ConvOptions options;
  std::vector<std::int64_t> output_padding;
};

const std::vector<Case> cases{
    {{2, 3, 4, 5}, {3, 6, 3, 3}, {{2}, {1}, {}, 1}, {1}},
    {{1, 4, 3, 3}, {4, 2, 2, 2}, {{2}, {}, {}, 2}, {}},
    {{3, 8, 5, 4}, {8, 1, 3, 3}, {{1}, {1}, {}, 8}, {}},
    {{2, 2, 4, 4}, {2, 3, 3, 2}, {{2, 3}, {0, 1}, {3, 1}, 1}, {1, 2}},
    {{40, 16, 4, 4}, {16, 8, 4, 4}, {{2}, {1}, {}, 1}, {}},
};

struct Gradients {
  Tensor y, dx, dw, db;
};

Gradients run(const Case& c, DType dtype) {
  const std::int64_t out = c.w[1] * c.options.groups;
  const Variable x(uniform(c.x, 1, dtype), true), w(uniform(c.w, 2, dtype), true),
      b(uniform({out}, 3, dtype), true);
  const Variable y = ops::conv_transpose2d(x, w, b, c.options, c.output_padding);
  y.backward(uniform(y.shape(), 4, dtype));
  return {y.tensor(), x.grad(), w.grad(), b.grad()};
}

TEST(ConvTranspose2d, F32AgreesWithLoopsInF64) {
  for (const auto& c : cases) {
    const auto f = run(c, DType::f32), d = run(c, DType::f64);
    EXPECT_LT(difference(f.y, d.y), kRounding) << to_string(c.w);
    EXPECT_LT(difference(f.dx, d.dx), kRounding) << to_string(c.w);
    EXPECT_LT(difference(f.dw, d.dw), kRounding) << to_string(c.w);
    EXPECT_LT(difference(f.db, d.db), kRounding) << to_string(c.w);
  }
}

TEST(ConvTranspose2d, KnownNumbers) {
  const Variable x(Tensor::from({1.0f, 2.0f}, {1, 1, 1, 2})),
      w(Tensor::from({1.0f, 10.0f, 100.0f}, {1, 1, 1, 3}));
  EXPECT_EQ(ops::conv_transpose2d(x, w, {}, {{1, 2}, {}, {}, 1}).tensor().to_vector<float>(),
            (std::vector<float>{1, 10, 102, 20, 200}));
  const Variable padded = ops::conv_transpose2d(x, w, {}, {{1, 2}, {0, 1}, {}, 1}, {0, 1});
  EXPECT_EQ(padded.tensor().to_vector<float>(), (std::vector<float>{10, 102, 20, 200}));
}

TEST(ConvTranspose2d, ForwardIsInvariantToThreadCount) {
  for (const auto& c : cases) {
    Tensor first;
    const Variable x(uniform(c.x, 1)), w(uniform(c.w, 2));
    test::run_with_threads({1, 2, 3, 8}, [&](int count) {
      const Tensor y = ops::conv_transpose2d(x, w, {}, c.options, c.output_padding).tensor();
      if (!first.defined()) first = y;
      EXPECT_TRUE(bitwise_equal(y, first)) << to_string(c.w) << count << " threads";
    });
  }
}

TEST(ConvTranspose2d, HandlesEmptyBatchAndMeta) {
  const Variable w(uniform({3, 2, 3, 3}, 1));
  EXPECT_EQ(ops::conv_transpose2d(Variable(Tensor::zeros({0, 3, 4, 4})), w).shape(), (Shape{0, 2, 6, 6}));
  const auto meta = [](Shape shape) {
    return Variable(Tensor::empty(std::move(shape), DType::f32, Device::meta()));
  };
  EXPECT_EQ(ops::conv_transpose2d(meta({5, 3, 4, 4}), meta({3, 2, 3, 3}), {}, {{2}, {1}, {}, 1}, {1}).shape(),
            (Shape{5, 2, 8, 8}));
}

TEST(ConvTranspose2d, RejectsMismatchedShapes) {
  const Variable x(uniform({2, 4, 3, 3}, 1));
  const auto expect_error = [&](const Shape& w, const ConvOptions& options,
                                const std::vector<std::int64_t>& extra = {}) {
    EXPECT_THROW((void)ops::conv_transpose2d(x, uniform(w, 2), {}, options, extra), ArgumentError);
  };
  expect_error({3, 4, 3, 3}, {});
  expect_error({4, 4, 3}, {});
  expect_error({4, 4, 3, 3}, {{}, {}, {}, 3});
  expect_error({4, 4, 3, 3}, {{}, {-1}, {}, 1});
  expect_error({4, 4, 3, 3}, {{2}, {}, {}, 1}, {2});
  expect_error({4, 4, 3, 3}, {{2}, {}, {}, 1}, {-1});
  expect_error({4, 4, 1, 1}, {{1}, {2}, {}, 1});
  EXPECT_THROW((void)ops::conv_transpose2d(x, uniform({4, 3, 3, 3}, 2), uniform({4}, 3)), ArgumentError);
}

TEST(ConvTranspose2d, ReportsToTheTrace) {
  Recorder recorder;
  const RecordScope scope(recorder);
  const auto graph = recorder.finish(ops::conv_transpose2d(uniform({2, 3, 4, 5}, 1), uniform({3, 6, 3, 3}, 2),
                                                           {}, {{2}, {1}, {}, 1}, {1, 0}));
  const auto& node = graph.nodes.at(0);
  EXPECT_EQ(node.op, "conv_transpose2d");
  EXPECT_EQ(node.attribute<std::vector<std::int64_t>>("output_padding"), (std::vector<std::int64_t>{1, 0}));
}

}  // namespace
}  // namespace fq::conv_transpose_test
