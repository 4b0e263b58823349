// Weights on the lattice of their format, as a network has that was trained with the format and saved as
// floats: the same codes come back.

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/numerics/number_formats.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/layers/quantizer/detail/ggml_scheme.h"
#include "fakequant/layers/quantizer/detail/weight_codes.h"
#include "fakequant/reference/ggml.h"
#include "fakequant/train/calibration/calibrate.h"
#include "layers/networks.h"

namespace fq::lattice_test {
namespace {

using namespace test;

constexpr std::int64_t kRows = 24;

struct Lattice {
  Tensor weight;             // f32 [rows, columns]
  std::vector<int> codes;    // of each weight
  std::vector<float> steps;  // of each block
};

enum class Numbers { f32, bf16 };

/// Codes drawn from lower .. upper, with a step for each block of `length` in a row.
Lattice lattice(int lower, int upper, std::int64_t length, Numbers numbers, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> code(lower, upper);
  std::uniform_real_distribution<float> size(0.002f, 0.05f);
  Lattice out{Tensor::empty({kRows, 2 * length}), {}, {}};
  auto* w = out.weight.mutable_data<float>();
  for (std::int64_t i = 0; i < out.weight.numel(); ++i) {
    if (i % length == 0) {
      const float step = size(random);
      out.steps.push_back(numbers == Numbers::bf16 ? static_cast<float>(bfloat16(step)) : step);
    }
    out.codes.push_back(code(random));
    w[i] = static_cast<float>(out.codes.back()) * out.steps.back();
    if (numbers == Numbers::bf16) w[i] = static_cast<float>(bfloat16(w[i]));
  }
  return out;
}

std::shared_ptr<Graph> make_layer(const Tensor& weight, const std::string& config, bool calibrates = true) {
  auto fc = std::make_shared<Linear>(weight.dim(1), weight.dim(0));
  Variable parameter = fc->weight();
  parameter.mutable_tensor().copy_from(weight);
  auto model = std::make_shared<Graph>(std::vector<GraphNode>{{"fc", fc, {"input"}}});
  quantize(*model, QuantConfig::parse(config), {1, weight.dim(1)});
  DataLoader data(std::make_shared<TensorDataset>(random_tensor({8, weight.dim(1)}, -1, 1)),
                  {.batch_size = 8});
  if (calibrates) calibrate(*model, data);
  return model;
}

std::string preset(const std::string& name) { return R"({"preset": ")" + name + R"("})"; }

QuantizedTensor layer_codes(Module& model) {
  return weight_codes(dynamic_cast<QuantModule&>(model.at("fc")));
}

std::vector<int> integer_codes(const QuantizedTensor& q) {
  std::vector<int> out;
  for (const float v : code_values(q).to(Layout::row_major).to_vector<float>()) out.push_back(int(v));
  return out;
}

/// The largest error of a weight in steps of its block.
double error_in_steps(Module& model, const Lattice& of, std::int64_t length) {
  const auto y = dequantize(layer_codes(model)).to_vector<float>();
  double out = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double step = double(of.steps[i / std::size_t(length)]);
    out = std::max(out, std::abs(double(y[i]) / step - double(of.codes[i])));
  }
  return out;
}

TEST(Lattice, GgmlBlocksKeepTheirCodes) {
  for (const bool calibrates : {true, false})
    for (const auto numbers : {Numbers::f32, Numbers::bf16})
      for (const int lower : {-8, -7, -5, -4}) {
        const auto of = lattice(lower, std::min(-lower, 7), 32, numbers, unsigned(-lower));
        auto model = make_layer(of.weight, preset("q4_0"), calibrates);
        // float16 rounds a step by 2^-11, bfloat16 a weight by 2^-8
        EXPECT_LT(error_in_steps(*model, of, 32), 8 * (numbers == Numbers::f32 ? 0x1p-11 : 0x1p-8)) << lower;
        if (lower != -4) {
          EXPECT_EQ(integer_codes(layer_codes(*model)), of.codes) << lower;
        }
      }
  for (const int largest : {127, 126, 100, 90}) {
    const auto of = lattice(-largest, largest, 32, Numbers::f32, unsigned(largest));
    auto model = make_layer(of.weight, preset("q8_0"));
    EXPECT_EQ(integer_codes(layer_codes(*model)), of.codes) << largest;
    EXPECT_LT(error_in_steps(*model, of, 32), 128 * 0x1p-11);
  }
}

/// Values of few codes, which several steps reach, lose nothing either.
TEST(Lattice, KeepsValuesOfFewCodesAndFourBitsInEight) {
  for (const int largest : {1, 2, 3}) {
    const auto of = lattice(-largest, largest, 32, Numbers::f32, unsigned(largest));
    EXPECT_LT(error_in_steps(*make_layer(of.weight, preset("q4_0")), of, 32), 3 * 0x1p-11) << largest;
  }
  const auto of = lattice(-7, 7, 32, Numbers::f32, 3);
  EXPECT_LT(error_in_steps(*make_layer(of.weight, preset("q8_0")), of, 32), 7 * 0x1p-11);
}

TEST(Lattice, OtherWeightsMatchLlamaCpp) {
  Tensor w = random_tensor({kRows, 96}, -1, 1, 5);
  w.mutable_data<float>()[7] = 3;
  for (const bool four : {true, false}) {
    auto model = make_layer(w, preset(four ? "q4_0" : "q8_0"));
    const auto own = four ? ggml::quantize_q4_0(w) : ggml::quantize_q8_0(w);
    const auto codes = layer_codes(*model);
    EXPECT_TRUE(bitwise_equal(codes.codes, own.codes));
    EXPECT_TRUE(bitwise_equal(codes.grid.scale, own.scale.to(DType::f32)));
  }
}

/// A step of training moves the values; the code of the largest one stays.
TEST(Lattice, TrainingAndStatesKeepBlockSteps) {
  const auto of = lattice(-7, 7, 32, Numbers::f32, 9);
  auto model = make_layer(of.weight, preset("q4_0"));
  Variable weight = dynamic_cast<Linear&>(model->at("fc")).weight();
  auto* w = weight.mutable_tensor().mutable_data<float>();
  for (std::int64_t i = 0; i < weight.numel(); ++i) w[i] *= 1.25f;
  w[0] += 0.3f * of.steps[0];
  const auto moved = layer_codes(*model);
  EXPECT_EQ(integer_codes(moved), of.codes);
  EXPECT_NEAR(moved.grid.scale.data<float>()[1], 1.25f * of.steps[1], 0.001f * of.steps[1]);
  StateDict state;
  save_quantizers(*model, state);
  auto other = make_layer(random_tensor(weight.shape(), -1, 1), preset("q4_0"));
  Variable(dynamic_cast<Linear&>(other->at("fc")).weight()).mutable_tensor().copy_from(weight.tensor());
  load_quantizers(*other, state);
  EXPECT_TRUE(bitwise_equal(layer_codes(*other).codes, moved.codes));
  EXPECT_TRUE(bitwise_equal(layer_codes(*other).grid.scale, moved.grid.scale));
  const Variable y = (*other)(Variable(random_tensor({3, 64}, -1, 1)));
  y.backward(Tensor::full(y.shape(), 1));
  for (const float g : dynamic_cast<Linear&>(other->at("fc")).weight().grad().to_vector<float>())
    EXPECT_NE(g, 0);
}

double squared_error(const Tensor& w, Module& model) {
  const auto x = w.to_vector<float>(), y = dequantize(layer_codes(model)).to_vector<float>();
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += std::pow(double(x[i]) - double(y[i]), 2);
  return sum;
}

TEST(Lattice, MseMinimizesTheErrorAndOthersAreRejected) {
  Tensor w = random_tensor({kRows, 64}, -1, 1, 6);
  for (std::int64_t i = 0; i < w.numel(); ++i) w.mutable_data<float>()[i] *= std::abs(w.data<float>()[i]);
  const auto made = [&](const std::string& name, const std::string& method) {
    return make_layer(w, R"({"preset": ")" + name +
                             R"(", "rules": {"*weight_quantizer": {"calib_method": ")" + method + R"("}}})");
  };
  for (const char* method : {"mse", "mse_search"}) {
    EXPECT_LT(squared_error(w, *made("q4_0", method)), 0.97 * squared_error(w, *made("q4_0", "max")));
    EXPECT_LT(squared_error(w, *made("q8_0", method)), squared_error(w, *made("q8_0", "max")));
  }
  EXPECT_THAT([&] { (void)made("q4_0", "entropy"); },
              testing::ThrowsMessage<ArgumentError>(testing::HasSubstr("use max, mse or mse_search")));
}

TEST(Lattice, BlocksOfIntegersKeepTheirCodes) {
  struct Case {
    const char* name;
    std::int64_t length;
    int lower, upper;
  };
  for (const Case& c :
       {Case{"int4_blockwise", 128, -8, 7}, Case{"int4_blockwise", 128, -6, 6},
        Case{"int2_blockwise", 32, -2, 1}, Case{"8da4w", 32, -8, 7}, Case{"8da4w", 32, -5, 5}})
    for (const auto numbers : {Numbers::f32, Numbers::bf16})
      for (const char* method : {"max", "mse_search", "mse"}) {
        const auto of = lattice(c.lower, c.upper, c.length, numbers, 11);
        auto model = make_layer(of.weight, std::string(R"({"preset": ")") + c.name +
                                               R"(", "rules": {"*weight_quantizer": {"calib_method": ")" +
                                               method + R"("}}})");
        EXPECT_EQ(integer_codes(layer_codes(*model)), of.codes) << c.name << " " << c.lower << " " << method;
      }
}

/// Scales of few bits: blocks whose largest code is the format's, and of MX all others too.
TEST(Lattice, RoundTripsPowerOfTwoScales) {
  for (const char* name : {"mxfp8", "mxfp6", "mxfp4", "mxint8"})
    for (const float top : {1.0f, 0.7f, 0.3f}) {
      Tensor w = random_tensor({kRows, 64}, -1, 1, 8);
      w.mutable_data<float>()[0] = top;
      auto first = make_layer(w, preset(name));
      const Tensor values = dequantize(layer_codes(*first));
      auto again = make_layer(values, preset(name));
      EXPECT_TRUE(bitwise_equal(dequantize(layer_codes(*again)), values)) << name;
      Tensor half = values.clone();
      for (std::int64_t i = 0; i < half.numel(); ++i)
        if (std::abs(half.data<float>()[i]) > 0.5f) half.mutable_data<float>()[i] = 0;
      EXPECT_TRUE(bitwise_equal(dequantize(layer_codes(*make_layer(half, preset(name)))), half)) << name;
    }
}

TEST(Lattice, ReportsStepsLostInFloat16) {
  Tensor w = random_tensor({4, 64}, -1, 1, 4);
  for (std::int64_t i = 0; i < 96; ++i) w.mutable_data<float>()[i] *= 4e-8f;  // 3 of 8 blocks
  for (const char* name : {"q4_0", "q8_0"}) {
    auto fc = std::make_shared<Linear>(64, 4);
    Variable parameter = fc->weight();
    parameter.mutable_tensor().copy_from(w);
    Graph model({{"fc", fc, {"input"}}});
    const auto warnings = quantize(model, QuantConfig::preset(name), {1, 64});
    ASSERT_EQ(warnings.size(), 1U);
    EXPECT_THAT(warnings[0], testing::HasSubstr("'fc.weight_quantizer': 3 of 8 blocks"));
  }
}

}  // namespace
}  // namespace fq::lattice_test
