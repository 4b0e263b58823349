// Weights of -a and +a.

#include <nlohmann/json.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/layers/config/quant_config.h"
#include "fakequant/layers/model/fold.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/layers/quantizer/detail/weight_scheme.h"
#include "layers/networks.h"
#include "thrown.h"

namespace fq::binary_test {
namespace {

using namespace test;
using ::testing::HasSubstr;

QuantParams params(int axis = 0) {
  QuantParams out;
  out.name = "fc.weight_quantizer";
  out.descriptor = QuantDescriptor({.num_bits = 2, .axis = axis, .narrow_range = true, .dynamic = true});
  out.weight_scheme = &detail::binary_weights();
  return out;
}

std::string quantize_error(const std::string& rule) {
  auto model = residual_net();
  return test::error_message([&] {
    return quantize(*model, QuantConfig::parse(R"({"preset": "binary", "rules": [)" + rule + "]}"),
                    {1, 1, 8, 8});
  });
}

const TensorQuantizer& quantizer(Module& model, const std::string& path) {
  return dynamic_cast<const TensorQuantizer&>(model.at(path));
}

TEST(Binary, WeightsAreSignsTimesTheChannelMean) {
  TensorQuantizer q(params());
  const Variable w(Tensor::from({1.0f, -2.0f, 0.0f, 3.0f, -0.5f, -0.25f, 0.5f, 0.75f}, {2, 4}), true);
  const Variable out = q.weight(w);
  ASSERT_NE(out.quantized(), nullptr);
  EXPECT_EQ(out.quantized()->codes.to_vector<std::int8_t>(),
            (std::vector<std::int8_t>{1, -1, 1, 1, -1, -1, 1, 1}));
  EXPECT_EQ(out.quantized()->grid.scale.to_vector<float>(), (std::vector<float>{1.5f, 0.5f}));
  EXPECT_EQ(out.tensor().to_vector<float>(),
            (std::vector<float>{1.5f, -1.5f, 1.5f, 1.5f, -0.5f, -0.5f, 0.5f, 0.5f}));
  EXPECT_EQ(q.quantized_values(w.tensor()).to_vector<float>(), out.tensor().to_vector<float>());
}

TEST(Binary, SupportsAnotherChannelAxis) {
  TensorQuantizer q(params(1));
  const Variable w(Tensor::from({1.0f, -2.0f, 3.0f, 4.0f}, {2, 2}));
  EXPECT_EQ(q(w).tensor().to_vector<float>(), (std::vector<float>{2, -3, 2, 3}));
}

TEST(Binary, PassesEveryGradient) {
  TensorQuantizer q(params());
  Variable w(Tensor::from({0.1f, -9.0f, 0.0f, 3.0f}, {1, 4}), true);
  q.weight(w).backward(Tensor::from({1.0f, 2.0f, 3.0f, 4.0f}, {1, 4}));
  EXPECT_EQ(w.grad().to_vector<float>(), (std::vector<float>{1, 2, 3, 4}));
}

TEST(Binary, KeepsAZeroChannel) {
  TensorQuantizer q(params());
  const Variable w(Tensor::from({0.0f, 0.0f, 1.0f, -1.0f}, {2, 2}));
  EXPECT_EQ(q(w).tensor().to_vector<float>(), (std::vector<float>{0, 0, 1, -1}));
}

TEST(Binary, RejectsNonFiniteValues) {
  TensorQuantizer q(params());
  const Variable w(Tensor::from({std::nanf(""), 1.0f}, {1, 2}));
  EXPECT_THROW((void)q(w).tensor(), NumericError);
}

TEST(Binary, RoundTripsThroughAFile) {
  TensorQuantizer q(params()), other;
  StateDict state;
  q.save(state, "q");
  other.load(state, "q");
  EXPECT_EQ(other.params().weight_scheme, &detail::binary_weights());
  EXPECT_EQ(other.descriptor(), q.descriptor());
}

TEST(Binary, IsRevertedByALaterRule) {
  auto model = residual_net();
  const auto config = QuantConfig::parse(R"({"preset": "binary", "rules": [
      {"pattern": "@first.weight_quantizer", "num_bits": 8}]})");
  quantize(*model, config, {1, 1, 8, 8});
  EXPECT_NE(quantizer(*model, "conv1.weight_quantizer").params().weight_scheme, &detail::binary_weights());
  EXPECT_EQ(quantizer(*model, "conv1.weight_quantizer").descriptor().to_json(),
            R"({"axis":0,"narrow_range":true})");
  EXPECT_EQ(quantizer(*model, "conv2.weight_quantizer").params().weight_scheme, &detail::binary_weights());
  EXPECT_FALSE(quantizer(*model, "conv2.input_quantizer").enabled());
  set_quantizer_attributes(*model, "conv2.weight_quantizer", {{"num_bits", 4}});
  EXPECT_NE(quantizer(*model, "conv2.weight_quantizer").params().weight_scheme, &detail::binary_weights());
  EXPECT_TRUE(quantizer(*model, "conv2.weight_quantizer").descriptor().needs_amax());
}

TEST(Binary, AcceptsAndRejectsFields) {
  EXPECT_EQ(PartialQuantParams::from_dict({{"binary", true}}).binary, std::optional(std::optional(true)));
  EXPECT_THAT(quantize_error(R"({"pattern": "*", "binary": 3})"), HasSubstr("'binary' is 3"));
  EXPECT_THAT(quantize_error(R"({"pattern": "fc.weight_quantizer", "num_bits": 3, "binary": true})"),
              HasSubstr("narrow integers of 2 bits"));
  EXPECT_THAT(quantize_error(R"({"pattern": "fc.weight_quantizer", "block_sizes": {"-1": 4}})"),
              HasSubstr("binary with blocks"));
  EXPECT_THAT(quantize_error(R"({"pattern": "fc.input_quantizer", "num_bits": 2, "binary": true})"),
              HasSubstr("that is for weights"));
  EXPECT_THAT(quantize_error(R"({"pattern": "fc.weight_quantizer", "scale_amax": 2})"),
              HasSubstr("without scale_amax"));
  auto model = residual_net();
  quantize(*model, QuantConfig::preset("int8"), {1, 1, 8, 8});
  EXPECT_THAT(test::error_message([&] {
                return set_quantizer_attributes(*model, "fc.input_quantizer",
                                                {{"num_bits", 2}, {"binary", true}, {"unsigned", false}});
              }),
              HasSubstr("that is for weights"));
  QuantParams reference = params();
  reference.arithmetic = Arithmetic::reference;
  EXPECT_THAT(test::error_message([&] { return TensorQuantizer(reference).name(); }),
              HasSubstr("use arithmetic deployed"));
}

TEST(Binary, KeepsCodesWhenFoldedAndPacked) {
  auto model = residual_net();
  quantize(*model, QuantConfig::preset("binary"), {1, 1, 8, 8});
  model->eval();
  const auto& conv = dynamic_cast<const QuantModule&>(model->at("conv2"));
  const QuantizedTensor before = weight_codes(conv);
  (void)fold_batch_norm(*model, {1, 1, 8, 8});
  EXPECT_EQ(quantizer(*model, "conv2.weight_quantizer").params().weight_scheme, &detail::binary_weights());
  const QuantizedTensor folded = weight_codes(conv);
  EXPECT_TRUE(bitwise_equal(folded.codes, before.codes));
  compress(*model);
  EXPECT_EQ(conv.quantized_weight().tensor().dtype(), DType::i2);
  EXPECT_TRUE(bitwise_equal(weight_codes(conv).codes, before.codes));
  EXPECT_TRUE(bitwise_equal(weight_codes(conv).grid.scale, folded.grid.scale));
}

}  // namespace
}  // namespace fq::binary_test
