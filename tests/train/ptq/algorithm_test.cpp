#include <limits>
#include <nlohmann/json.hpp>

#include "fakequant/core/error.h"
#include "fakequant/train/data/dataset.h"
#include "fakequant/train/ptq/algorithms.h"
#include "fakequant/train/ptq/detail/algorithm_entry.h"
#include "train/ptq/layer_errors.h"

namespace fq::algorithm_test {
namespace {

using namespace test;

/// Runs a config's algorithm around calibration; returns how many layers it changed.
std::size_t run(Module& model, const QuantConfig& config) {
  const ptq::Algorithm algorithm(config, 256);
  auto data = digit_batches("train");
  (void)quantize(model, config, digit_shape());
  std::size_t changed = algorithm.before(model, *data).layers.size();
  (void)calibrate(model, *data, {.samples = 256});
  changed += algorithm.after(model, *data).layers.size();
  return changed;
}

std::vector<float> model_weights(Module& model) {
  std::vector<float> out;
  for (const auto& layer : list_layers(model))
    for (const float v : layer.weight.tensor().to_vector<float>()) out.push_back(v);
  return out;
}

TEST(PtqAlgorithm, EveryNameRuns) {
  for (const auto& name : QuantConfig::weight_algorithm_names()) {
    QuantConfig config = QuantConfig::preset("w4a8");
    config.weight_algorithm = name;
    auto model = trained("mlp");
    EXPECT_GE(run(*model, config), 2u) << name;
    EXPECT_GT(accuracy(*model), 0.88) << name;
  }
}

TEST(PtqAlgorithm, AcceptsModelOptOptionNames) {
  const nlohmann::json theirs{{"min_clip_ratio", 0.25}, {"step", 0.1}, {"shrink_step", 0.2}};
  const ptq::AlgorithmOptions options("awq_full", ptq::awq_full_entry().options, &theirs, 64);
  EXPECT_EQ(options.number("lowest", 0.5), 0.25);
  EXPECT_EQ(options.number("step", 0.05), 0.1);
  EXPECT_EQ(options.number("alpha_step", 0.125), 0.125);
  EXPECT_EQ(options.samples(), 64);
  const nlohmann::json damped{{"perc_damp", 0.5}, {"act_order", true}};
  const ptq::AlgorithmOptions gptq("gptq", ptq::gptq_entry().options, &damped, 0);
  EXPECT_EQ(gptq.number("damping", 0.01), 0.5);
  EXPECT_TRUE(gptq.flag("act_order", false));
}

TEST(PtqAlgorithm, RunsModelOptConstants) {
  for (const char* name :
       {"INT8_SMOOTHQUANT_CFG", "INT4_AWQ_CFG", "W4A8_AWQ_BETA_CFG", "NVFP4_AWQ_LITE_CFG"}) {
    auto model = trained("mlp");
    EXPECT_EQ(run(*model, QuantConfig::preset(name)), 3u) << name;
    EXPECT_GT(accuracy(*model), 0.88) << name;
  }
}

TEST(PtqAlgorithm, NoneDoesNothing) {
  auto model = trained("mlp");
  EXPECT_EQ(run(*model, QuantConfig::preset("w4a8")), 0u);
}

TEST(PtqAlgorithm, RejectsUnknownOptions) {
  const auto made = [](const char* options) {
    return ptq::Algorithm(
        QuantConfig::parse(std::string(R"({"preset": "w4a8", "weight_algorithm": )") + options + "}"));
  };
  EXPECT_NO_THROW((void)made(R"({"method": "gptq", "act_order": true, "damping": 0.1})"));
  EXPECT_THROW((void)made(R"({"method": "gptq", "alpha": 0.1})"), ArgumentError);
  EXPECT_THROW((void)made(R"({"method": "gptq", "act_order": 1})"), ArgumentError);
  EXPECT_THROW((void)made(R"({"method": "smoothquant", "alpha": "0.1"})"), ArgumentError);
  for (const char* count : {"0", "-1", "2.5", "1e300", "5000000000"})
    EXPECT_THROW((void)made((std::string(R"({"method": "adaround", "iterations": )") + count + "}").c_str()),
                 ArgumentError)
        << count;
  QuantConfig unknown = QuantConfig::preset("w4a8");
  unknown.weight_algorithm = "gptk";
  EXPECT_THROW((void)ptq::Algorithm(unknown), ArgumentError);
}

TEST(PtqAlgorithm, ListsAlgorithmsThatChangeTheNetworkFirst) {
  std::vector<std::string> before;
  for (const auto& name : QuantConfig::weight_algorithm_names()) {
    QuantConfig config = QuantConfig::preset("w4a8");
    config.weight_algorithm = name;
    if (ptq::Algorithm(config).precedes_calibration()) before.push_back(name);
  }
  EXPECT_EQ(before, (std::vector<std::string>{"smoothquant", "equalize", "awq_lite", "awq_full"}));
}

TEST(PtqAlgorithm, RejectsUnreadableData) {
  for (const auto& name : QuantConfig::weight_algorithm_names()) {
    if (name == "equalize") continue;  // looks at weights alone
    QuantConfig config = QuantConfig::preset("w4a8");
    config.weight_algorithm = name;
    const ptq::Algorithm algorithm(config);
    auto model = trained("mlp");
    (void)quantize(*model, config, digit_shape());
    if (!algorithm.precedes_calibration()) (void)calibrate(*model, *digit_batches("test"));
    const auto before = model_weights(*model);
    const auto run_algorithm = [&](const Tensor& x) {
      DataLoader data(std::make_shared<TensorDataset>(x), {.batch_size = 4, .shuffle = false});
      (void)algorithm.before(*model, data);
      (void)algorithm.after(*model, data);
    };
    EXPECT_THROW(run_algorithm(Tensor::zeros({0, 1, 8, 8})), ArgumentError) << name;
    for (const float value :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      Tensor x = Tensor::zeros({8, 1, 8, 8});
      x.mutable_data<float>()[5 * 64 + 9] = value;
      EXPECT_THROW(run_algorithm(x), NumericError) << name << " " << value;
    }
    EXPECT_EQ(model_weights(*model), before) << name;
  }
}

}  // namespace
}  // namespace fq::algorithm_test
