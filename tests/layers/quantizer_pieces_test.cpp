// Observer, codes of a weight and arithmetic of a quantizer, each alone; and the whole.

#include <nlohmann/json.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/quantized.h"
#include "fakequant/layers/quantizer/detail/arithmetic.h"
#include "fakequant/layers/quantizer/detail/weight_codes.h"
#include "fakequant/layers/quantizer/observer.h"
#include "fakequant/layers/quantizer/tensor_quantizer.h"

namespace fq::quantizer_pieces_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

QuantParams named(QuantDescriptorOptions options) {
  QuantParams out;
  out.name = "fc.input_quantizer";
  out.descriptor = QuantDescriptor(std::move(options));
  return out;
}

TEST(RangeObserver, ObserverReplacesTheCalibrator) {
  const QuantParams params = named({});
  RangeObserver observer(params);
  EXPECT_THROW((void)observer.range(), ArgumentError);
  int seen = 0;
  observer.set_watcher([&](const Variable&) { ++seen; });
  observer.observe(Variable(Tensor::from({5.0f})));
  EXPECT_EQ(seen, 1);
  EXPECT_FALSE(observer.minimum().has_value());
  observer.set_watcher({});
  observer.observe(Variable(Tensor::from({-5.0f, 2.0f})));
  EXPECT_EQ(observer.minimum(), -5.0f);
  EXPECT_EQ(observer.range().amax.item(), 5);
}

TEST(RangeObserver, BecomesUnsignedOnlyIfAllowed) {
  QuantParams params = named({});
  RangeObserver observer(params);
  observer.collect(Tensor::from({0.0f, 2.0f}));
  EXPECT_FALSE(observer.range().is_unsigned);
  params.may_become_unsigned = true;
  EXPECT_TRUE(observer.range().is_unsigned);
  observer.collect(Tensor::from({-1.0f}));
  EXPECT_FALSE(observer.range().is_unsigned);
}

TEST(RangeObserver, IsUnchangedAfterARejectedState) {
  const QuantParams params = named({});
  RangeObserver observer(params);
  observer.collect(Tensor::from({3.0f}));
  StateDict state;
  observer.save(state, "q");
  state.set_attribute("q/calibrator_options", 7);
  EXPECT_THAT([&] { observer.merge(state, "q"); },
              ThrowsMessage<ArgumentError>(HasSubstr("'fc.input_quantizer' is damaged")));
  EXPECT_EQ(observer.range().amax.item(), 3);
}

TEST(WeightCodes, AreCachedUntilTheWeightChanges) {
  QuantParams params = named({});
  QuantizerRange range(params);
  range.set(Tensor::scalar(127));
  const detail::GridCache grid(params, range);
  WeightCodes codes(params, range, grid);
  Variable w(Tensor::from({1.0f, -2.0f}), true);
  ASSERT_TRUE(codes.request(w).has_value());
  const Variable first = codes.of(w);
  EXPECT_FALSE(codes.request(w).has_value());
  EXPECT_EQ(codes.of(w).quantized()->codes.raw(), first.quantized()->codes.raw());
  w.mutable_tensor().mutable_data<float>()[0] = 3;
  EXPECT_TRUE(codes.request(w).has_value());
  EXPECT_EQ(codes.of(w).quantized()->codes.to_vector<std::int8_t>(), (std::vector<std::int8_t>{3, -2}));
  params.observing = true;  // what looks on wants floats
  EXPECT_FALSE(codes.keeps(w));
}

TEST(WeightCodes, ArePackedOnlyInTheirFormatType) {
  const QuantParams params = named({.num_bits = 4});
  QuantizerRange range(params);
  range.set(Tensor::scalar(7));
  const detail::GridCache grid(params, range);
  const WeightCodes codes(params, range, grid);
  const Tensor bytes = Tensor::from(std::vector<std::int8_t>{-7, 3}, {2});
  EXPECT_EQ(codes.unpack(pack_codes(bytes, DType::i4)).codes.to_vector<std::int8_t>(),
            bytes.to_vector<std::int8_t>());
  EXPECT_THAT([&] { (void)codes.unpack(bytes); }, ThrowsMessage<ArgumentError>(HasSubstr("are kept as i4")));
}

TEST(Arithmetic, BothKindsShareAGridAndDifferInOuterGradients) {
  QuantParams params = named({});
  QuantizerRange range(params);
  range.set(Tensor::scalar(127));
  const detail::GridCache grid(params, range);
  const Tensor values = Tensor::from({1.25f, -3.5f, 500.0f});
  std::vector<std::vector<float>> gradients;
  for (const Arithmetic arithmetic : {Arithmetic::deployed, Arithmetic::reference}) {
    params.arithmetic = arithmetic;
    const WeightCodes codes(params, range, grid);
    const auto made = detail::make_arithmetic(params, range, grid, codes);
    EXPECT_EQ(made->values(values).to_vector<float>(), (std::vector<float>{1, -4, 127}));
    const Variable x(values, true);
    made->quantize(x).backward(Tensor::full({3}, 1));
    gradients.push_back(x.grad().to_vector<float>());
  }
  EXPECT_EQ(gradients, (std::vector<std::vector<float>>{{1, 1, 0}, {1, 1, 1}}));
}

TEST(TensorQuantizer, IsUnchangedAfterARejectedUpdate) {
  TensorQuantizer q(QuantDescriptor({.axis = 0, .learn_amax = true}));
  q.set_amax(Tensor::from({1.0f, 2.0f}));
  const auto change = [](QuantParams& s) {
    s.name = "other";
    s.arithmetic = Arithmetic::reference;
  };
  EXPECT_THROW(q.update(change), ArgumentError);
  EXPECT_EQ(q.name(), "");
  EXPECT_EQ(q.params().arithmetic, Arithmetic::deployed);
  EXPECT_EQ(q.amax().numel(), 2);
}

TEST(TensorQuantizer, KeepsStatisticsUntilTheDescriptorChanges) {
  TensorQuantizer q;
  q.observer().collect(Tensor::from({2.0f}));
  q.update([](QuantParams& s) { s.pow2 = true; });
  q.set_name("q");
  q.set_descriptor(q.descriptor());
  EXPECT_EQ(q.observer().range().amax.item(), 2);
  q.update([](QuantParams& s) { s.descriptor = QuantDescriptor({.num_bits = 4}); });
  EXPECT_THROW((void)q.observer().range(), ArgumentError);
}

}  // namespace
}  // namespace fq::quantizer_pieces_test
