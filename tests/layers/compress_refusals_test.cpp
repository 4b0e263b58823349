// Rejected codes of a packed weight, and layers that cannot use packed weights.

#include <nlohmann/json.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/layers/model/fold.h"
#include "fakequant/layers/quantizer/detail/weight_codes.h"
#include "layers/compressed.h"

namespace fq::compress_refusals_test {
namespace {

using namespace test;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// Two layers with one weight, and a float layer of the same if asked for.
std::shared_ptr<Sequential> shared_weight(float amax_of_second, bool as_float = false) {
  const Linear linear(12, 12);
  auto model = std::make_shared<Sequential>();
  for (const std::string name : {"a", "b"}) {
    auto quant = std::make_shared<QuantLinear>(linear);
    model->add(name, quant);
    quant->weight_quantizer()->set_name(name + ".weight_quantizer");
    quant->weight_quantizer()->set_amax(Tensor::scalar(name == "a" ? 1.0 : double(amax_of_second)));
    quant->input_quantizers()[0]->set_enabled(false);
  }
  if (!as_float) return model;
  class Reader : public Module {
   public:
    explicit Reader(const Linear& other) { adopt(other); }
  };
  model->add("c", std::make_shared<Reader>(linear));
  return model;
}

template <class F>
void expect_error(Module& model, F&& call, const std::string& why) {
  const std::int64_t before = parameter_bytes(model);
  EXPECT_THAT(call, ThrowsMessage<ArgumentError>(HasSubstr(why)));
  EXPECT_EQ(parameter_bytes(model), before);
}

TEST(Compress, SupportsAWeightOfSeveralLayers) {
  auto model = shared_weight(1);
  EXPECT_EQ(compress(*model).size(), 1u);
  EXPECT_TRUE(holds_codes(layer(*model, "b").quantized_weight()));
  model = shared_weight(2);
  expect_error(
      *model, [&] { compress(*model); }, "'a.weight' is read on another grid by 'b'");
  model = shared_weight(1, true);
  expect_error(
      *model, [&] { compress(*model); }, "'c.weight' is read as floats too");
}

TEST(Compress, RejectsFormatsWithoutCodes) {
  auto model = float_network();
  expect_error(
      *model, [&] { compress(*model); }, "no quantized weight: quantize and calibrate it first");
  quantize(*model, QuantConfig::preset("int8"), kImage);
  expect_error(
      *model, [&] { compress(*model); }, "'conv.weight_quantizer' has no amax: calibrate it");
  QuantConfig reference = QuantConfig::preset("int8");
  reference.arithmetic = Arithmetic::reference;
  model = quantized(reference);
  expect_error(
      *model, [&] { compress(*model); }, "gives floats, not codes");
  model = quantized("int8");
  layer(*model, "fc2").weight_quantizer()->update([](QuantParams& s) {
    s.pre_quant_scale = Tensor::scalar(2);
  });
  expect_error(
      *model, [&] { compress(*model); }, "scales the weight before it quantizes it");
  EXPECT_THAT([&] { (void)weight_codes(*std::make_shared<QuantAdd>(Add(), 2)); },
              ThrowsMessage<ArgumentError>(HasSubstr("no weight")));
  model = quantized("int8");
  weight(*model, "fc2").mutable_data<float>()[3] = std::numeric_limits<float>::quiet_NaN();
  const std::int64_t before = parameter_bytes(*model);
  EXPECT_THROW(compress(*model), NumericError);
  EXPECT_EQ(parameter_bytes(*model), before);
}

TEST(Compress, FunctionsThatRequireFloatsReportIt) {
  auto model = residual_net();
  quantize(*model, QuantConfig::preset("int8"), kImage);
  calibrate_all(*model);
  compress(*model);
  const std::string way_out = "holds codes: do this before compress(), or decompress() the model first";
  expect_error(
      *model, [&] { fold_batch_norm(*model, kImage); }, "'conv1.weight' " + way_out);
  expect_error(
      *model, [&] { check_not_compressed(*model, "here"); }, "[here] 'conv1.weight'");
}

TEST(Compress, RejectsAnotherFormat) {
  auto model = quantized("w4a4");
  compress(*model);
  set_quantizer_attributes(*model, "conv.weight_quantizer", {{"num_bits", 8}});
  EXPECT_THAT([&] { (void)logits(*model); },
              ThrowsMessage<ArgumentError>(HasSubstr("codes of int8 narrow are kept as i8")));
}

TEST(SetWeight, AcceptsFloatsAndCodes) {
  auto model = quantized("w4a4"), other = quantized("w4a4");
  compress(*model);
  for (const std::string path : {"conv", "grouped", "fc1", "fc2"})
    set_weight(layer(*other, path), weight(*model, path));
  EXPECT_TRUE(bitwise_equal(logits(*model), logits(*other)));
  const Tensor floats = random_tensor({37, 90}, -1, 1);
  set_weight(layer(*other, "fc1"), floats);
  EXPECT_TRUE(bitwise_equal(weight(*other, "fc1"), floats));
  EXPECT_TRUE(layer(*other, "fc1").quantized_weight().requires_grad());
}

TEST(SetWeight, RejectsInvalidCodes) {
  const auto expect_weight_error = [](const std::string& preset, const Tensor& value,
                                      const std::string& why) {
    auto model = quantized(preset);
    expect_error(
        *model, [&] { set_weight(layer(*model, "fc2"), value); }, why);
  };
  const auto bytes = [](std::uint8_t byte, DType dtype) {
    Tensor out = Tensor::zeros({10, 37}, dtype);
    std::fill_n(static_cast<std::uint8_t*>(out.mutable_raw()), out.nbytes(), byte);
    return out;
  };
  expect_weight_error("int8", Tensor::zeros({10, 36}, DType::i8),
                      "the weight of 'fc2.weight_quantizer' is [10, 37]");
  expect_weight_error("int8", bytes(1, DType::i4), "codes of int8 narrow are kept as i8");
  expect_weight_error("int8", bytes(0x80, DType::i8), "has a code of -128");
  expect_weight_error("w4a4", bytes(0x88, DType::i4), "has a code of -8");
  expect_weight_error("w3a3", bytes(0x07, DType::i4), "has a code of 7, int3 narrow has -3 to 3");
  expect_weight_error("fp8", bytes(0x7f, DType::f8_e4m3), "has a code of nan");
  expect_weight_error("nvfp4", bytes(1, DType::f4_e2m1), "there are no scales with the codes");
}

TEST(SetWeight, RejectsMismatchedScales) {
  auto model = quantized("nvfp4");
  compress(*model);
  TensorQuantizer& q = *layer(*model, "fc2").weight_quantizer();
  const PackedScales good = q.weight_codes().scales();
  q.weight_codes().set_scales({Tensor::full({7}, 1)});
  EXPECT_THAT([&] { check_weight(layer(*model, "fc2"), weight(*model, "fc2")); },
              ThrowsMessage<ArgumentError>(HasSubstr("has 7 scales, its weight [10, 37] has 30 blocks")));
  EXPECT_THAT([&] { q.weight_codes().set_scales({Tensor::zeros({30})}); },
              ThrowsMessage<ArgumentError>(HasSubstr("a scale of 'fc2.weight_quantizer' is 0")));
  EXPECT_THAT(
      [&] {
        q.weight_codes().set_scales({good.values, -good.unit});
      },
      ThrowsMessage<ArgumentError>(HasSubstr("finite and positive")));
  EXPECT_THAT([&] { q.weight_codes().set_scales({Tensor::zeros({30}, DType::i8)}); },
              ThrowsMessage<ArgumentError>(HasSubstr("use f32, f8_e4m3 or f8_e8m0")));
}

}  // namespace
}  // namespace fq::compress_refusals_test
