// Quantizers that have seen only zeros: they pass floats, and training gives them a range.

#include <gtest/gtest.h>

#include "fakequant/core/io/state_dict.h"
#include "fakequant/layers/modules/checkpoint.h"
#include "fakequant/layers/quantizer/compress.h"
#include "layers/networks.h"

namespace fq::zero_range_test {
namespace {

using namespace test;

const Tensor& values() {
  static const Tensor x = Tensor::from({0.5f, -2.0f, 0.25f, 1.0f}, {2, 2});
  return x;
}

std::unique_ptr<TensorQuantizer> zero_quantizer(QuantDescriptorOptions options = {}, std::size_t ranges = 1) {
  auto q = std::make_unique<TensorQuantizer>(QuantDescriptor(std::move(options)));
  const std::vector<float> zeros(ranges, 0.0f);
  q->set_amax(ranges == 1 ? Tensor::scalar(0) : Tensor::from(zeros, {std::int64_t(ranges)}));
  return q;
}

std::vector<float> amax(const TensorQuantizer& q) { return q.amax().to_vector<float>(); }

TEST(ZeroRange, PassesFloatsAndReportsIt) {
  const auto made = zero_quantizer();
  TensorQuantizer& q = *made;
  EXPECT_FALSE(q.enabled());
  EXPECT_TRUE(q.params().enabled);
  EXPECT_TRUE(q.range().is_zero());
  EXPECT_NE(q.describe().find("saw only zeros"), std::string::npos) << q.describe();
  EXPECT_TRUE(bitwise_equal(q.quantized_values(values()), values()));
  Variable x(values(), true);
  q.eval();
  const Variable y = q(x);
  EXPECT_EQ(y.quantized(), nullptr);
  EXPECT_TRUE(bitwise_equal(y.tensor(), values()));
  EXPECT_EQ(amax(q), (std::vector<float>{0}));
}

TEST(ZeroRange, TrainingStartsFromTheFirstNonZeroValues) {
  const auto made = zero_quantizer();
  TensorQuantizer& q = *made;
  EXPECT_EQ(q(Variable(Tensor::zeros({2, 2}), true)).quantized(), nullptr);
  EXPECT_TRUE(q.range().is_zero());
  EXPECT_NE(q(Variable(values(), true)).quantized(), nullptr);
  EXPECT_EQ(amax(q), (std::vector<float>{2}));
  EXPECT_TRUE(q.enabled());
  (void)q(Variable(Tensor::from({-3.0f, 1.0f}, {1, 2}), true));
  EXPECT_EQ(amax(q), (std::vector<float>{3}));
  (void)q(Variable(Tensor::from({0.1f, 0.0f}, {1, 2}), true));
  EXPECT_EQ(amax(q), (std::vector<float>{3}));
  q.eval();
  (void)q(Variable(Tensor::full({1, 2}, 9), true));
  EXPECT_EQ(amax(q), (std::vector<float>{3}));
}

TEST(ZeroRange, IsUnchangedWithoutAGradient) {
  const auto made = zero_quantizer();
  TensorQuantizer& q = *made;
  const NoGrad no_grad;
  (void)q(Variable(values()));
  EXPECT_TRUE(q.range().is_zero());
}

TEST(ZeroRange, RunningRangesBeginWithTheFirstValues) {
  for (const bool known : {true, false}) {
    TensorQuantizer q;
    if (known) q.set_amax(Tensor::scalar(0));
    q.update([](QuantParams& s) { s.running = true; });
    EXPECT_EQ(q(Variable(Tensor::zeros({2, 2}), true)).quantized(), nullptr);
    (void)q(Variable(values(), true));
    EXPECT_EQ(amax(q), (std::vector<float>{2}));
  }
}

TEST(ZeroRange, LearnedRangesBeginWithTheFirstValues) {
  const auto made = zero_quantizer({.num_bits = 4, .learn_amax = true});
  TensorQuantizer& q = *made;
  const auto* parameter = q.range().learned().node().get();
  EXPECT_EQ(q(Variable(Tensor::zeros({2, 2}), true)).quantized(), nullptr);
  (void)q(Variable(values(), true));
  EXPECT_EQ(amax(q), (std::vector<float>{2}));
  EXPECT_EQ(q.range().learned().node().get(), parameter);
  (void)q(Variable(Tensor::full({1, 2}, 3), true));
  EXPECT_EQ(amax(q), (std::vector<float>{2}));
  (void)q(Variable(Tensor::full({1, 2}, 9), true));
  EXPECT_EQ(amax(q), (std::vector<float>{4.5}));  // half of the largest magnitude, as 4 of 8 bits
}

TEST(ZeroRange, ChannelsAreIndependent) {
  for (const bool learned : {false, true}) {
    TensorQuantizer q(QuantDescriptor({.axis = 0, .learn_amax = learned}));
    q.set_amax(Tensor::from({1.0f, 0.0f}));
    EXPECT_TRUE(q.enabled());
    Variable w(Tensor::from({5.0f, 1.0f, 0.0f, 0.0f}, {2, 2}), true);
    (void)q.weight(w);
    EXPECT_EQ(amax(q), (std::vector<float>{1, 0}));
    w.mutable_tensor().copy_from(values());
    const Variable y = q.weight(w);
    EXPECT_EQ(amax(q), (std::vector<float>{1, 1}));  // only the second channel was zero
    EXPECT_EQ(y.tensor().to_vector<float>()[3], 1.0f);
    y.backward(Tensor::full({2, 2}, 1.0));
    EXPECT_EQ(w.grad().to_vector<float>(), (std::vector<float>{1, 0, 1, 1}));
  }
}

TEST(ZeroRange, BlocksAreIndependent) {
  const auto made = zero_quantizer({.num_bits = 4, .block_sizes = {.lengths = {{-1, 2}}}}, 2);
  TensorQuantizer& q = *made;
  Variable w(Tensor::from({0.0f, 0.0f, 0.5f, -2.0f}, {1, 4}), true);
  EXPECT_NE(q.weight(w).quantized(), nullptr);
  EXPECT_EQ(amax(q), (std::vector<float>{0, 2}));
}

TEST(ZeroRange, RaisedRangesStillGrow) {
  TensorQuantizer q(QuantDescriptor({.axis = 0}));
  q.set_amax(Tensor::from({1.0f, 0.0f}));
  q.raise_amax(Tensor::from({1.0f, 0.125f}));
  Variable w(Tensor::from({5.0f, 1.0f, 2.0f, 0.0f}, {2, 2}), true);
  (void)q.weight(w);
  EXPECT_EQ(amax(q), (std::vector<float>{1, 2}));
}

TEST(ZeroRange, SavesGrowingRanges) {
  TensorQuantizer q(QuantDescriptor({.axis = 0})), other;
  q.set_amax(Tensor::from({1.0f, 0.0f}));
  Variable w(Tensor::from({1.0f, 1.0f, 2.0f, 0.0f}, {2, 2}), true);
  (void)q.weight(w);
  StateDict state;
  q.save(state, "q");
  other.load(state, "q");
  EXPECT_EQ(other.range().growing().to_vector<float>(), (std::vector<float>{0, 1}));
  Variable larger(Tensor::full({2, 2}, 3), true);
  (void)other.weight(larger);
  EXPECT_EQ(amax(other), (std::vector<float>{1, 3}));
}

TEST(ZeroRange, RecomputedBlocksKeepTheirRanges) {
  const auto made = zero_quantizer();
  TensorQuantizer& q = *made;
  const auto run = [&](const std::vector<Variable>& in) { return q(in[0]); };
  Variable zeros(Tensor::zeros({2, 2}), true), x(values(), true), larger(Tensor::full({2, 2}, 4), true);
  const Variable first = checkpoint(run, {zeros}, {}), second = checkpoint(run, {x}, {});
  const Variable third = checkpoint(run, {larger}, {});
  EXPECT_EQ(amax(q), (std::vector<float>{4}));
  for (const Variable& y : {first, second, third}) y.backward(Tensor::full({2, 2}, 1.0));
  EXPECT_EQ(zeros.grad().to_vector<float>(), std::vector<float>(4, 1));
  EXPECT_EQ(x.grad().to_vector<float>(), std::vector<float>(4, 1));
  EXPECT_EQ(amax(q), (std::vector<float>{4}));
}

TEST(ZeroRange, CalibrationOnZerosKeepsTheSign) {
  TensorQuantizer q;
  q.update([](QuantParams& s) { s.may_become_unsigned = true; });
  q.observer().collect(Tensor::zeros({4}));
  q.load_calibrated_amax();
  EXPECT_FALSE(q.descriptor().is_unsigned());
  EXPECT_TRUE(q.range().is_zero());
}

TEST(ZeroRange, ReferenceMatchesModelOpt) {
  TensorQuantizer q(QuantDescriptor(), Arithmetic::reference);
  q.set_amax(Tensor::scalar(0));
  EXPECT_TRUE(q.enabled());
  EXPECT_EQ(q(Variable(values())).tensor().to_vector<float>(), std::vector<float>(4, 0));
}

}  // namespace
}  // namespace fq::zero_range_test
