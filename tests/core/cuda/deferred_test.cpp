/// Float operators behind sums whose results their first reader computes. Each is compared with the same
/// operators computed one by one: `as_float` between two operators computes the first.

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "core/operator_run.h"
#include "cuda_device.h"
#include "fakequant/core/backend/capture.h"
#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/error.h"
#include "fakequant/core/numerics/detail/activations.h"
#include "fakequant/core/ops/ops.h"

namespace fq::cuda_deferred_test {
namespace {

using test::random_values;

class CudaDeferred : public testing::Test {
 protected:
  void SetUp() override { FQ_NEEDS_CUDA(); }
  void TearDown() override { cuda::count_work(false); }
};

Variable leaf(const Shape& shape, unsigned seed, double low = -1, double high = 1) {
  return {random_values(shape, seed, low, high).to(DType::f32).to(Device::cuda()), true};
}

Grid grid(double amax, const IntFormat& format = {}) {
  return Grid::from_amax(format, Granularity::per_tensor(), Tensor::scalar(amax), "next").to(Device::cuda());
}

/// A quantized linear layer and a residual of its output's shape.
struct Layer {
  Variable x, w, bias, residual, gamma, beta;

  Layer(const Shape& rows, std::int64_t width)
      : x(leaf(shape(rows, 24), 1)),
        w(leaf({width, 24}, 2)),
        bias(leaf({width}, 3)),
        residual(leaf(shape(rows, width), 4, -3, 3)),
        gamma(leaf({width}, 5, 0.5, 1.5)),
        beta(leaf({width}, 6)) {}

  static Shape shape(Shape rows, std::int64_t width) {
    rows.push_back(width);
    return rows;
  }
  [[nodiscard]] Variable sums() const {
    const Grid by_channel = Grid::from_amax(IntFormat{8, false, true}, Granularity::per_axis(0),
                                            Tensor::full({w.dim(0)}, 1.0, DType::f32, w.device()), "weight");
    return ops::linear(ops::quantize(x, grid(1.0)), ops::quantize(w, by_channel), bias);
  }
  [[nodiscard]] std::vector<Variable> leaves() const { return {x, w, bias, residual, gamma, beta}; }
};

/// Codes and mask of y, and the gradients of the leaves after a backward pass from y's floats.
std::vector<Tensor> outcome(const Layer& layer, const Variable& y) {
  std::vector<Tensor> out{y.tensor()};
  if (const auto* q = y.quantized()) out.insert(out.end(), {q->codes, q->mask});
  y.as_float().backward(random_values(y.shape(), 9, -1, 1).to(DType::f32).to(Device::cuda()));
  for (const auto& each : layer.leaves()) {
    if (each.grad().defined()) out.push_back(each.grad());
    Variable(each).zero_grad();
  }
  return out;
}

void expect_equal(const std::vector<Tensor>& found, const std::vector<Tensor>& expected,
                  const std::string& where) {
  ASSERT_EQ(found.size(), expected.size()) << where;
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_TRUE(bitwise_equal(found[i], expected[i])) << where << ", tensor " << i;
}

bool is_deferred(const Variable& x) { return x.accumulator() != nullptr && x.accumulator()->is_deferred(); }

Variable norm(const Layer& layer, const Variable& x, bool rms) {
  return rms ? ops::rms_norm(x, layer.gamma) : ops::layer_norm(x, layer.gamma, layer.beta);
}

/// Sizes of rows, among them one that is not a multiple of 8, and one beyond the registers of a block.
const std::vector<std::pair<Shape, std::int64_t>> sizes{{{3, 5}, 16}, {{7}, 13}, {{1}, 8}, {{2}, 2064}};

TEST_F(CudaDeferred, ResidualAndNormalizationMatchSeparateKernels) {
  for (const auto& [rows, width] : sizes)
    for (const bool rms : {false, true}) {
      const Layer layer(rows, width);
      const Grid next = grid(1.5);
      const auto where = to_string(layer.residual.shape()) + (rms ? " rms" : "");
      const Variable total = ops::add(layer.sums(), layer.residual), y = norm(layer, total, rms);
      ASSERT_TRUE(is_deferred(total) && is_deferred(y)) << where;
      // The second reader of the total is the next residual sum.
      const Variable fused = ops::add(ops::quantize(y, next), total);
      const Variable alone = ops::add(layer.sums().as_float(), layer.residual).as_float();
      const Variable apart = ops::add(ops::quantize(norm(layer, alone, rms).as_float(), next), alone);
      expect_equal(outcome(layer, fused), outcome(layer, apart), where);
    }
}

TEST_F(CudaDeferred, CodesOfNormalizedRowsMatchTheirFloats) {
  for (const auto& [rows, width] : sizes)
    for (const auto& format : {IntFormat{}, IntFormat{8, true, false}, IntFormat{4}, IntFormat{16}}) {
      const Layer layer(rows, width);
      const Grid next = grid(1.5, format);
      const Variable fused = ops::quantize(norm(layer, layer.residual, false), next),
                     apart = ops::quantize(norm(layer, layer.residual, false).as_float(), next);
      expect_equal(outcome(layer, fused), outcome(layer, apart), to_string(layer.residual.shape()));
    }
}

Variable activated(const std::string& name, const Variable& x) {
  if (name == "silu") return ops::silu(x);
  if (name == "hard_swish") return ops::hard_swish(x);
  return ops::gelu(x, name == "gelu_tanh");
}

TEST_F(CudaDeferred, ActivationsMatchSeparateKernels) {
  for (const auto& [rows, width] : sizes)
    for (const std::string name : {"gelu", "gelu_tanh", "silu", "hard_swish"}) {
      const Layer layer(rows, width);
      const Grid next = grid(1.5);
      // In bf16 the backward pass reads rounded values, so only f32 gives the gradients of separate kernels.
      const BackwardScope exact(BackwardType::fp32);
      const Variable y = activated(name, layer.sums());
      ASSERT_TRUE(is_deferred(y)) << name;
      const auto fused = outcome(layer, ops::quantize(y, next)),
                 apart =
                     outcome(layer, ops::quantize(activated(name, layer.sums().as_float()).as_float(), next));
      expect_equal(fused, apart, name);
      expect_equal(outcome(layer, activated(name, layer.sums())),
                   outcome(layer, activated(name, layer.sums().as_float())), name + " floats");
    }
}

TEST_F(CudaDeferred, ActivationsKeepABf16InputForBackward) {
  const Layer layer({5}, 16);
  const Variable y = ops::gelu(layer.sums());
  const Tensor values = y.tensor();
  y.as_float().backward(Tensor::full(y.shape(), 1.0, DType::f32, Device::cuda()));
  const Variable rounded(layer.sums().tensor().to(DType::bf16).to(DType::f32), true);
  ops::gelu(rounded).backward(Tensor::full(y.shape(), 1.0, DType::f32, Device::cuda()));
  // The gradient of the bias is the sum of the rows of dy.
  const Variable rows(rounded.grad(), true);
  EXPECT_TRUE(bitwise_equal(layer.bias.grad(), ops::sum(rows, {0}).tensor()));
}

TEST_F(CudaDeferred, OtherReadersGetFloats) {
  const Layer layer({2, 3}, 16);
  const auto total = [&] { return ops::add(layer.sums(), layer.residual); };
  const auto alone = [&] { return ops::add(layer.sums().as_float(), layer.residual).as_float(); };
  const auto both = [&](const auto& reader, const std::string& name) {
    expect_equal(outcome(layer, reader(total())), outcome(layer, reader(alone())), name);
  };
  both([](const Variable& x) { return ops::relu(x); }, "relu");
  both([](const Variable& x) { return ops::reshape(x, {6, 16}); }, "reshape");
  both([](const Variable& x) { return ops::concat({x, x}, 0); }, "concat");
  both([](const Variable& x) { return ops::softmax(x, 2); }, "softmax");
  both([](const Variable& x) { return ops::max_pool1d(x, {.kernel = 2}); }, "max_pool1d");
  both(
      [](const Variable& x) {
        return ops::fake_quantize(
            x, Grid::from_amax(FloatFormat{4, 3}, {}, Tensor::scalar(2.0), "e4m3").to(Device::cuda()));
      },
      "e4m3");
  both(
      [&](const Variable& x) {
        const Variable amax(Tensor::full({}, 1.5, DType::f32, Device::cuda()), true);
        const ops::LearnedRange learned{amax};
        return ops::quantize(x, grid(1.5), &learned);
      },
      "learned range");
}

TEST_F(CudaDeferred, LossesDoNotWriteIntoTheResidual) {
  const Layer layer({6}, 16);
  const Variable logits = ops::add(layer.sums(), layer.residual);
  const Tensor before = logits.tensor().clone();
  const Tensor labels = Tensor::zeros({6}, DType::i64, Device::cuda());
  ops::cross_entropy(logits, labels).backward();
  EXPECT_TRUE(bitwise_equal(logits.tensor(), before));
}

TEST_F(CudaDeferred, AddsSumsOfTwoLayersAndPendingRelus) {
  const Layer layer({4}, 16);
  const auto second = [&] {
    return ops::linear(ops::quantize(layer.residual, grid(2.0)), ops::quantize(leaf({16, 16}, 7), grid(1.0)));
  };
  for (const bool relu : {false, true}) {
    const auto other = [&] { return relu ? ops::relu(second()) : second(); };
    for (const bool first : {false, true}) {
      const Variable fused = first ? ops::add(other(), layer.sums()) : ops::add(layer.sums(), other());
      EXPECT_TRUE(is_deferred(fused));
      const Variable a = layer.sums().as_float(), b = other().as_float();
      expect_equal(outcome(layer, fused), outcome(layer, first ? ops::add(b, a) : ops::add(a, b)),
                   "two layers");
    }
  }
}

TEST_F(CudaDeferred, NanRaisesTheAlarmOfTheQuantizer) {
  for (const bool rms : {false, true}) {
    Layer layer({2}, 16);
    Tensor values = Tensor::zeros({2, 16});
    values.mutable_data<float>()[17] = std::numeric_limits<float>::quiet_NaN();
    layer.residual = Variable(values.to(Device::cuda()));
    const Variable y = ops::quantize(norm(layer, ops::add(layer.sums(), layer.residual), rms), grid(1.0));
    try {
      (void)y.tensor().to(Device::cpu());
      ADD_FAILURE() << "no error";
    } catch (const NumericError& e) {
      EXPECT_NE(std::string(e.what()).find("next"), std::string::npos) << e.what();
    }
  }
}

TEST_F(CudaDeferred, WritesToAnInputBeforeTheFirstReadThrow) {
  Layer layer({2}, 16);
  const Variable y = norm(layer, layer.residual, false);
  (void)layer.gamma.mutable_tensor().mutable_raw();  // a write
  EXPECT_THROW((void)y.tensor(), ArgumentError);
}

TEST_F(CudaDeferred, EachChainIsOneLaunchWithoutFloatsBetween) {
  const Layer layer({8}, 32);
  const Variable sums = layer.sums(), more = layer.sums();
  const Grid next = grid(1.0);
  cuda::count_work(true);
  (void)ops::quantize(norm(layer, ops::add(sums, layer.residual), false), next);
  (void)ops::quantize(ops::gelu(more), next);
  std::int64_t launches = 0, written = 0;
  for (const auto& each : cuda::counted_work()) {
    launches += each.launches;
    written += each.written;
  }
  constexpr std::int64_t elements = 8 * 32, codes = elements + elements / 8;
  // The total and the rows' numbers in f32, the input of GELU in bf16, two tensors of codes and masks.
  EXPECT_EQ(written, elements * 4 + 2 * 8 * 4 + elements * 2 + 2 * codes);
  EXPECT_EQ(launches, 2);
}

TEST_F(CudaDeferred, BackwardMayBeginAtAnUnreadResult) {
  const Layer layer({3}, 16);
  const BackwardScope exact(BackwardType::fp32);
  const Tensor seed = random_values({3, 16}, 9, -1, 1).to(DType::f32).to(Device::cuda());
  const auto gradients = [&](const Variable& y) {
    y.backward(seed);
    const std::vector<Tensor> out{layer.w.grad(), layer.bias.grad()};
    for (const auto& each : layer.leaves()) Variable(each).zero_grad();
    return out;
  };
  expect_equal(gradients(ops::gelu(layer.sums())), gradients(ops::gelu(layer.sums().as_float())), "gelu");
  for (const bool rms : {false, true}) {
    const Variable alone = ops::add(layer.sums().as_float(), layer.residual).as_float();
    expect_equal(gradients(norm(layer, ops::add(layer.sums(), layer.residual), rms)),
                 gradients(norm(layer, alone, rms).as_float()), "norm");
  }
}

TEST_F(CudaDeferred, ASecondReaderDoesNotWriteTheInputAgain) {
  const Layer layer({8}, 32);
  const Variable y = ops::gelu(layer.sums());
  (void)ops::quantize(y, grid(1.0));
  const Grid other = grid(2.0);
  cuda::count_work(true);
  const Variable codes = ops::quantize(y, other);
  std::int64_t written = 0;
  for (const auto& each : cuda::counted_work()) written += each.written;
  EXPECT_EQ(written, codes.quantized()->codes.nbytes() + codes.quantized()->mask.nbytes());
}

TEST_F(CudaDeferred, FunctionsWithoutAKernelForBf16InputsThrow) {
  const Tensor dy = Tensor::full({8}, 1.0, DType::f32, Device::cuda());
  Tensor dx = dy.clone();
  EXPECT_THROW(detail::run(dx.device(), &detail::Kernels::activate_backward, dy, dy.to(DType::bf16),
                           detail::Activation{detail::Exp{}}, dx),
               BackendError);
}

TEST_F(CudaDeferred, EmptyBatchesWork) {
  const Layer layer({0}, 16);
  const Variable y = ops::quantize(norm(layer, ops::add(layer.sums(), layer.residual), false), grid(1.0));
  EXPECT_EQ(y.shape(), (Shape{0, 16}));
  EXPECT_EQ(ops::quantize(ops::gelu(layer.sums()), grid(1.0)).shape(), (Shape{0, 16}));
}

}  // namespace
}  // namespace fq::cuda_deferred_test
