#include <map>

#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/core/trace.h"
#include "fakequant/export/scales.h"
#include "layers/networks.h"

namespace fq::layer_sums_test {
namespace {

/// Products as a run makes them, by layer.
class ProductRecorder : public Recorder {
 public:
  void record_op(std::string_view, const std::vector<Variable>&, const Variable& output,
                 Attributes) override {
    if (output.accumulator() == nullptr) return;
    if (const auto* sums = std::get_if<ProductSums>(&output.accumulator()->value))
      products[module_path()] = *sums;
  }
  std::map<std::string, ProductSums> products;
};

std::shared_ptr<Graph> convolutions() {
  const ops::ConvOptions grouped{.stride = {}, .padding = {1}, .dilation = {}, .groups = 2};
  std::vector<GraphNode> nodes;
  nodes.push_back({"conv", std::make_shared<Conv2d>(2, 4, Shape{3}), {"input"}});
  nodes.push_back({"grouped", std::make_shared<Conv2d>(4, 6, Shape{3}, grouped), {"conv"}});
  nodes.push_back({"up", std::make_shared<ConvTranspose2d>(6, 4, Shape{2}, grouped), {"grouped"}});
  nodes.push_back({"bare", std::make_shared<Conv2d>(4, 2, Shape{1}, ops::ConvOptions{}, false), {"up"}});
  nodes.push_back({"flat", make_flatten(), {"bare"}});
  nodes.push_back({"fc", std::make_shared<Linear>(50, 3), {"flat"}});
  return std::make_shared<Graph>(std::move(nodes));
}

std::map<std::string, ProductSums> run(Module& model, const Tensor& x) {
  const NoGrad no_grad;
  ProductRecorder recorder;
  const RecordScope scope(recorder);
  (void)model(Variable(x)).tensor();
  return recorder.products;
}

void expect_those_of_a_run(const char* config, std::size_t layers) {
  auto model = convolutions();
  const Tensor x = test::random_tensor({2, 2, 8, 8}, -1, 1);
  quantize(*model, QuantConfig::parse(config), x.shape());
  test::observe(*model, x);
  const auto products = run(*model, x);
  EXPECT_EQ(products.size(), layers);
  for (const auto& [path, module] : model->named_modules()) {
    const auto sums = layer_sums(*module);
    ASSERT_EQ(sums.has_value(), products.contains(path)) << path;
    if (!sums) continue;
    const ProductSums& made = products.at(path);
    EXPECT_TRUE(bitwise_equal(sums->scale, made.scale)) << path;
    ASSERT_EQ(sums->bias.defined(), made.bias.defined()) << path;
    EXPECT_TRUE(!made.bias.defined() || bitwise_equal(sums->bias, made.bias)) << path;
  }
}

TEST(LayerSums, MatchARun) {
  expect_those_of_a_run(R"({"preset": "int8"})", 5);
  expect_those_of_a_run(R"({"preset": "w4a4", "target": "tensorrt", "scale": "pow2"})", 5);
  expect_those_of_a_run(R"({"preset": "int8", "rules": [{"pattern": "*weight_quantizer", "axis": null}]})",
                        5);
}

TEST(LayerSums, SkipFloatProducts) {
  expect_those_of_a_run(R"({"preset": "int8_weight_only"})", 0);
  expect_those_of_a_run(R"({"preset": "fp8"})", 0);
  expect_those_of_a_run(R"({"preset": "int8", "rules": [{"pattern": "up.*", "num_bits": 12},
      {"pattern": "fc.weight_quantizer", "block_sizes": {"-1": 10}, "axis": null}]})",
                        3);
}

TEST(LayerSums, NameUncalibratedQuantizers) {
  auto model = convolutions();
  quantize(*model, QuantConfig::parse(R"({"preset": "int8"})"), {1, 2, 8, 8});
  try {
    (void)layer_sums(model->at("fc"));
    FAIL() << "no error";
  } catch (const ArgumentError& error) {
    EXPECT_NE(std::string(error.what()).find("fc.input_quantizer"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace fq::layer_sums_test
