#include "fakequant/core/tape.h"

#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/core/ops/quantize.h"
#include "fakequant/core/ops/shape.h"

namespace fq::tape_test {
namespace {

/// y = factor * x, keeping x for backward.
Variable times(const Variable& x, float factor) {
  const Tensor in = x.tensor();
  Tensor out = in.clone();
  for (std::int64_t i = 0; i < out.numel(); ++i) out.mutable_data<float>()[i] *= factor;
  const detail::Saved saved(in);
  return detail::record("times", out, {x}, [saved, factor](const Tensor& dy) {
    Tensor dx = saved.get().clone();
    for (std::int64_t i = 0; i < dx.numel(); ++i) dx.mutable_data<float>()[i] = dy.data<float>()[i] * factor;
    return std::vector<Tensor>{dx};
  });
}

Variable sum(const Variable& a, const Variable& b) {
  Tensor out = a.tensor().clone();
  for (std::int64_t i = 0; i < out.numel(); ++i) out.mutable_data<float>()[i] += b.tensor().data<float>()[i];
  return detail::record("sum", out, {a, b}, [](const Tensor& dy) { return std::vector<Tensor>{dy, dy}; });
}

TEST(Tape, SumsGradientsOfAllReadersOnce) {
  Variable x(Tensor::from({2.0f, -3.0f}), true);
  const Variable twice = times(x, 2.0f);
  sum(sum(twice, times(twice, 5.0f)), x).backward(Tensor::full({2}, 1.0));
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{13.0f, 13.0f}));
  times(x, 1.0f).backward(Tensor::full({2}, 1.0));
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{14.0f, 14.0f}));
  x.zero_grad();
  EXPECT_FALSE(x.grad().defined());
}

TEST(Tape, RecordsNothingWithoutGradients) {
  const Variable constant(Tensor::from({1.0f}));
  EXPECT_FALSE(times(constant, 2.0f).requires_grad());
  Variable x(Tensor::from({1.0f}), true);
  const NoGrad no_grad;
  EXPECT_FALSE(times(x, 2.0f).requires_grad());
}

TEST(Tape, RejectsChangedValuesSecondRunsAndMissingSeeds) {
  Variable x(Tensor::from({1.0f, 2.0f}), true);
  const Variable y = times(x, 3.0f);
  EXPECT_THROW(y.backward(), ArgumentError);
  x.mutable_tensor().mutable_data<float>()[0] = 4.0f;
  EXPECT_THROW(y.backward(Tensor::full({2}, 1.0)), ArgumentError);
  const Variable z = times(x, 3.0f);
  z.backward(Tensor::full({2}, 1.0));
  EXPECT_THROW(z.backward(Tensor::full({2}, 1.0)), ArgumentError);
  EXPECT_THROW(Variable(Tensor::scalar(1.0)).backward(), ArgumentError);
}

TEST(Tape, ConvertsCodesToFloatsOnceForAllReaders) {
  Variable x(Tensor::from({0.1f, -5.0f, 0.7f}), true);
  const Grid grid = Grid::from_amax(IntFormat{}, {}, Tensor::scalar(1.0), "x");
  const Variable q = ops::quantize(x, grid);
  EXPECT_EQ(ops::quantize(x, grid).node(), q.node());
  EXPECT_EQ(ops::quantize(q, grid).node(), q.node());
  const Variable a = q.as_float(), b = q.as_float();
  EXPECT_EQ(a.node(), b.node());
  sum(a, b).backward(Tensor::full({3}, 1.0));
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{2.0f, 0.0f, 2.0f}));
}

TEST(Tape, AppliesThePendingReluOfSumsToTheGradient) {
  const Accumulator sums{ProductSums{Tensor::from({-8, 8, 80}, {1, 3}), {}, Tensor::scalar(0.125), 1}, true};
  Variable leaf(Tensor::zeros({1, 3}), true);
  const auto pass = [](const Tensor& dy) { return std::vector<Tensor>{dy}; };
  const Variable x = detail::record("sums", sums, {leaf}, pass);
  EXPECT_EQ(x.tensor().to_vector<float>(), (std::vector<float>{0.0f, 1.0f, 10.0f}));
  x.as_float().backward(Tensor::full({1, 3}, 1.0));
  EXPECT_EQ(leaf.grad().to_vector<float>(), (std::vector<float>{0, 1, 1}));
  leaf.zero_grad();
  const Variable again = detail::record("sums", sums, {leaf}, pass);
  const Variable q = ops::quantize(again, Grid::from_amax(IntFormat{8, true}, {}, Tensor::scalar(1.0), "q"));
  EXPECT_EQ(q.quantized()->codes.to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{0, 255, 255}));
  q.backward(Tensor::full({1, 3}, 1.0));
  EXPECT_EQ(leaf.grad().to_vector<float>(), (std::vector<float>{0, 1, 0}));
}

TEST(Tape, MasksTheReluOfEachConcatenatedPart) {
  const auto pass = [](const Tensor& dy) { return std::vector<Tensor>{dy}; };
  const auto sums = [](bool relu) {
    return Accumulator{ProductSums{Tensor::from({-8, 8}, {1, 2}), {}, Tensor::scalar(0.125), 1}, relu};
  };
  const Grid grid = Grid::from_amax(IntFormat{}, {}, Tensor::scalar(1.0), "q");
  for (const bool second : {true, false}) {
    Variable a(Tensor::zeros({1, 2}), true), b(Tensor::zeros({1, 2}), true);
    const Variable x = ops::concat(
        {detail::record("sums", sums(true), {a}, pass), detail::record("sums", sums(second), {b}, pass)}, 1);
    const Variable q = ops::quantize(x, grid);
    EXPECT_EQ(q.tensor().to_vector<float>(), (std::vector<float>{0, 1, second ? 0.0f : -1.0f, 1}));
    q.backward(Tensor::full({1, 4}, 1.0));
    EXPECT_EQ(a.grad().to_vector<float>(), (std::vector<float>{0, 1}));
    EXPECT_EQ(b.grad().to_vector<float>(), (std::vector<float>{second ? 0.0f : 1.0f, 1}));
  }
}

TEST(Trace, NamesOperatorsValuesAndPaths) {
  Recorder recorder;
  Variable x(Tensor::from({1.0f}));
  recorder.name(x, "input");
  recorder.mark_input(x);
  Variable y;
  {
    const RecordScope scope(recorder);
    const PathScope outer("block"), inner("conv");
    y = times(x, 2.0f);
    y = sum(y, x);
  }
  const TraceGraph graph = recorder.finish(y);
  ASSERT_EQ(graph.nodes.size(), 2u);
  EXPECT_EQ(graph.nodes[1].path, "block.conv");
  EXPECT_EQ(graph.input(graph.nodes[1], 1).name, "input");
  EXPECT_EQ(graph.values[static_cast<std::size_t>(graph.inputs[0])].readers, (std::vector<int>{0, 1}));
  EXPECT_EQ(graph.output, graph.nodes[1].output);
  EXPECT_EQ(module_path(), "");
}

}  // namespace
}  // namespace fq::tape_test
