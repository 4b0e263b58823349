// Functions that an engine computes in its own way: ggml's GELU, an entry of a table of f16.

#include <cmath>

#include <gtest/gtest.h>

#include "fakequant/core/numerics/detail/ggml_formulas.h"
#include "fakequant/core/ops/activation.h"
#include "fakequant/core/ops/engines/engine_ops.h"
#include "fakequant/layers/modules/activation.h"
#include "fakequant/layers/modules/linear.h"
#include "fakequant/layers/quantize.h"
#include "layers/networks.h"

namespace fq::engine_functions_test {
namespace {

using namespace test;

float half(std::uint16_t bits) { return detail::f16_value(bits); }
std::vector<float> compute_gelu(const std::vector<float>& x) {
  const auto size = static_cast<std::int64_t>(x.size());
  return ops::ggml_gelu(Tensor::from(x, {size})).tensor().to_vector<float>();
}
float at(float x) { return compute_gelu({x}).at(0); }

// {x, y} of ggml_table_gelu_f16 in ggml 0.25.3, glibc 2.36: all of the 37,376 entries within (-10, 10) are
// equal. The last is the one that another rounding than an fma changes.
constexpr std::uint16_t kEntries[][2] = {{0x0001, 0x0000}, {0x8001, 0x8000}, {0x3c00, 0x3abb},
                                         {0xbc00, 0xb115}, {0x4000, 0x3fd2}, {0xc000, 0xa9d0},
                                         {0x4500, 0x4500}, {0xc500, 0x8005}, {0x2e66, 0x2ae8},
                                         {0xc640, 0x8000}, {0x48ff, 0x48ff}, {0xbfff, 0xa9d3}};

TEST(GgmlGelu, MatchesTheEngineTable) {
  for (const auto& [x, y] : kEntries) EXPECT_EQ(detail::f16_bits(at(half(x))), y) << half(x);
}

TEST(GgmlGelu, RoundsItsInputAndSaturatesAtTen) {
  EXPECT_EQ(at(1.0001f), at(1.0f));  // f16 has nothing between 1 and 1.001
  EXPECT_EQ(at(9.9999f), 10.0f);     // rounded
  EXPECT_EQ(at(10.0001f), 10.0001f);
  EXPECT_EQ(at(-10.0f), 0.0f);
  EXPECT_EQ(at(-INFINITY), 0.0f);
  EXPECT_EQ(at(INFINITY), INFINITY);
  EXPECT_TRUE(std::isnan(at(NAN)));
}

TEST(GgmlGelu, VectorsAndDoublesMatchTheFormulaBitwise) {
  std::vector<float> x, y;
  std::vector<double> as_doubles;
  for (float v = -12.0f; v < 12.0f; v += 0.00171f) {
    x.push_back(v);
    y.push_back(detail::ggml_gelu(v));
    as_doubles.push_back(y.back());
  }
  EXPECT_EQ(compute_gelu(x), y);
  const auto size = static_cast<std::int64_t>(x.size());
  const Tensor doubles = Tensor::from(x, {size}).to(DType::f64);
  EXPECT_EQ(ops::ggml_gelu(doubles).tensor().to_vector<double>(), as_doubles);
}

TEST(GgmlGelu, UsesTheGradientOfTheExactFunction) {
  const Tensor x = random_tensor({40}, -4, 4);
  for (const bool by_tanh : {false, true}) {
    Variable own(x, true), plain(x, true);
    ops::ggml_gelu(own, by_tanh).backward(Tensor::full({40}, 1.0));
    ops::gelu(plain, by_tanh).backward(Tensor::full({40}, 1.0));
    EXPECT_EQ(own.grad().to_vector<float>(), plain.grad().to_vector<float>());
  }
}

std::shared_ptr<Graph> with_gelu() {
  return std::make_shared<Graph>(std::vector<GraphNode>{{"up", std::make_shared<Linear>(32, 64), {"input"}},
                                                        {"act", make_function("gelu"), {"up"}},
                                                        {"down", std::make_shared<Linear>(64, 8), {"act"}}});
}

TEST(GgmlGelu, TargetsSelectTheirEngineFunction) {
  for (const char* preset : {"q4_0", "q8_0", "8da8w", "int8"}) {
    const auto model = with_gelu();
    quantize(*model, QuantConfig::preset(preset), {1, 32});
    const bool ggml = std::string(preset).starts_with("q");
    const auto x = random_tensor({3, 64}, -3, 3);
    EXPECT_EQ(model->at("act").type(), "gelu");
    EXPECT_EQ(model->at("act")(Variable(x)).tensor().to_vector<float>(),
              (ggml ? ops::ggml_gelu(x) : ops::gelu(x)).tensor().to_vector<float>())
        << preset;
  }
}

}  // namespace
}  // namespace fq::engine_functions_test
