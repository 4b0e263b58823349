#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include <gtest/gtest.h>

#include "fakequant/calib/histogram.h"
#include "fakequant/core/error.h"
#include "fakequant/layers/model/merge.h"
#include "fakequant/layers/modules/conv.h"
#include "fakequant/train/calibration/calibrate.h"
#include "layers/networks.h"

namespace fq::calibration_rules_test {
namespace {

using namespace test;
using nlohmann::ordered_json;

const Shape kInput{1, 1, 8, 8};

std::shared_ptr<Graph> net(const ordered_json& algorithm, const ordered_json& rules = ordered_json::array()) {
  auto model = residual_net();
  quantize(*model, QuantConfig::from_json({{"preset", "int8"}, {"algorithm", algorithm}, {"rules", rules}}),
           kInput);
  return model;
}

TensorQuantizer& quantizer(Module& model, const std::string& path) {
  return dynamic_cast<TensorQuantizer&>(model.at(path));
}

std::string method(Module& model, const std::string& path) {
  return quantizer(model, path).descriptor().calib_method();
}

DataLoader loader(const Tensor& images) {
  return DataLoader(std::make_shared<TensorDataset>(images), {.batch_size = 8, .shuffle = false});
}

/// Says what reached it.
class Recording final : public Calibrator {
 public:
  explicit Recording(int passes) : passes_(passes) {}
  [[nodiscard]] std::string_view method() const noexcept override { return "recording"; }
  [[nodiscard]] int passes() const noexcept override { return passes_; }
  void next_pass() override { log += '|'; }
  std::string log;

 protected:
  void do_collect(const Tensor&, float) override { log += 'x'; }
  [[nodiscard]] Tensor do_compute(const AmaxOptions&) const override { return Tensor::scalar(2); }
  void do_reset() override { log.clear(); }
  void do_save(StateDict&) const override {}
  void do_load(const StateDict&) override {}

 private:
  int passes_;
};

Recording& record(Module& model, const std::string& path, int passes) {
  auto own = std::make_unique<Recording>(passes);
  auto& out = *own;
  quantizer(model, path).observer().set_calibrator(std::move(own));
  return out;
}

TEST(CalibrationRules, ConfigAlgorithmAppliesToActivationsWithoutAMethod) {
  const auto model = net("entropy", {{{"pattern", "fc.input_quantizer"}, {"calib_method", "max"}}});
  EXPECT_EQ(method(*model, "conv1.input_quantizer"), "entropy");
  EXPECT_EQ(method(*model, "fc.input_quantizer"), "max");
  EXPECT_EQ(method(*model, "conv1.weight_quantizer"), "max");
}

TEST(CalibrationRules, AcceptAndRejectConfigKeys) {
  const auto config = QuantConfig::from_json(
      {{"preset", "int8"},
       {"algorithm",
        {{"method", "percentile"},
         {"percentile", 99},
         {"distributed_sync", true},
         {"rules", {{{"pattern", "*fc*"}, {"method", "entropy"}, {"stride", 2}}}},
         {"postprocess", {{{"pattern", "*"}, {"multiply", 1.5}, {"minimum", 0.25}, {"pow2", true}}}}}}});
  EXPECT_EQ(config.algorithm, "percentile");
  EXPECT_EQ(config.amax.percentile, 99);
  ASSERT_EQ(config.calibration.size(), 1U);
  EXPECT_EQ(config.calibration[0].method, "entropy");
  EXPECT_EQ(config.calibration[0].amax.stride, 2);
  EXPECT_EQ(config.calibration[0].amax.percentile, 99);
  ASSERT_EQ(config.postprocess.size(), 1U);
  EXPECT_EQ(config.postprocess[0].multiply, 1.5);
  EXPECT_EQ(config.postprocess[0].minimum, 0.25);
  EXPECT_TRUE(config.postprocess[0].pow2);
  const std::vector<ordered_json> wrong{
      {{"method", "percentile"}, {"percentile", 101}},
      {{"method", "entropy"}, {"stride", 0}},
      {{"method", "entropy"}, {"stride", 1.5}},
      {{"method", "max"}, {"rules", "fc"}},
      {{"method", "max"}, {"rules", {{{"method", "max"}}}}},
      {{"method", "max"}, {"rules", {{{"pattern", "*"}, {"method", "maxx"}}}}},
      {{"method", "max"}, {"rules", {{{"pattern", "*"}, {"methd", "max"}}}}},
      {{"method", "max"}, {"postprocess", {{{"pattern", "*"}, {"multiply", -1}}}}},
      {{"method", "max"}, {"postprocess", {{{"pattern", "*"}, {"pow2", 1}}}}},
      {{"method", "max"}, {"postprocess", {4}}}};
  for (const auto& algorithm : wrong)
    EXPECT_THROW((void)QuantConfig::from_json({{"preset", "int8"}, {"algorithm", algorithm}}), ArgumentError)
        << algorithm;
}

TEST(CalibrationRules, LastMatchSelectsMethodAndOptions) {
  const auto model = net("max");
  const Tensor images = random_tensor({32, 1, 8, 8}, 0, 1);
  DataLoader data = loader(images);
  CalibrateOptions options{.method = "entropy"};
  options.rules = {{.pattern = "conv*.input_quantizer", .method = "percentile", .amax = {.percentile = 10}},
                   {.pattern = "conv1.input_quantizer", .method = "percentile", .amax = {.percentile = 50}}};
  calibrate(*model, data, options);
  EXPECT_EQ(method(*model, "fc.input_quantizer"), "entropy");
  EXPECT_EQ(method(*model, "conv2.input_quantizer"), "percentile");
  HistogramCalibrator expected("percentile");
  for (int i = 0; i < 4; ++i) expected.collect(images.slice(8 * i, 8 * i + 8));
  EXPECT_EQ(quantizer(*model, "conv1.input_quantizer").amax().item(),
            expected.compute_amax({.percentile = 50}).item());
}

TEST(CalibrationRules, InvalidOrUnmatchedRulesChangeNothing) {
  const auto model = net("max");
  DataLoader data = loader(random_tensor({16, 1, 8, 8}, 0, 1));
  calibrate(*model, data);
  const double before = quantizer(*model, "fc.input_quantizer").amax().item();
  std::vector<CalibrateOptions> wrong(5);
  wrong[0].rules = {{.pattern = "conf1*", .method = "entropy"}};
  wrong[1].rules = {{.pattern = "*", .amax = {.percentile = 100.5}}};
  wrong[2].amax.percentile = -1;
  wrong[3].rules = {{.pattern = "fc.input_quantizer", .method = "maxx"}};
  wrong[4] = {.method = "entropy", .amax = {.start_bin = 1 << 20}};  // refused when ranges are chosen
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    EXPECT_THROW(calibrate(*model, data, wrong[i]), ArgumentError) << i;
    EXPECT_EQ(method(*model, "fc.input_quantizer"), "max") << i;
    EXPECT_EQ(quantizer(*model, "fc.input_quantizer").observer().calibrator().compute_amax().item(), before)
        << i;
    EXPECT_EQ(quantizer(*model, "fc.input_quantizer").amax().item(), before) << i;
  }
}

TEST(CalibrationRules, RunThePassesRequiredByTheMethods) {
  const auto model = net("max");
  Recording &two = record(*model, "conv1.input_quantizer", 2), &one = record(*model, "fc.input_quantizer", 1);
  DataLoader data = loader(random_tensor({16, 1, 8, 8}, 0, 1));
  EXPECT_EQ(calibrate(*model, data).passes, 2);
  EXPECT_EQ(two.log, "xx|xx");
  EXPECT_EQ(one.log, "xx");
  EXPECT_EQ(quantizer(*model, "conv1.input_quantizer").amax().item(), 2);
  EXPECT_THROW(calibrate(*model, data, {.keep_collected = true}), ArgumentError);
  EXPECT_EQ(calibrate(*model, data).samples, 16);
}

TEST(CalibrationRules, CountASharedTensorOnce) {
  const auto model = net("max");
  const auto shared = named_quantizers(*model);
  const auto found = std::ranges::find_if(shared, [](const auto& q) { return q.aliases.size() == 1; });
  ASSERT_NE(found, shared.end());  // pool, read by conv2 and add
  Recording& log = record(*model, found->name, 1);
  DataLoader data = loader(random_tensor({16, 1, 8, 8}, 0, 1));
  calibrate(*model, data);
  EXPECT_EQ(log.log, "xx");
}

/// a and b of the input; cat of both, read by c; add of c and a.
std::shared_ptr<Graph> joining_net(Target target) {
  std::vector<GraphNode> nodes;
  const auto conv = [](std::int64_t in) {
    return std::make_shared<Conv2d>(in, 4, Shape{1}, ops::ConvOptions{});
  };
  nodes.push_back({"a", conv(1), {"input"}});
  nodes.push_back({"b", conv(1), {"input"}});
  nodes.push_back({"cat", std::make_shared<Concat>(), {"a", "b"}});
  nodes.push_back({"c", conv(8), {"cat"}});
  nodes.push_back({"add", std::make_shared<Add>(), {"c", "a"}});
  auto model = std::make_shared<Graph>(std::move(nodes));
  QuantConfig config = QuantConfig::preset("int8");
  config.target = target;
  quantize(*model, config, kInput);
  return model;
}

TEST(CalibrationRules, ConcatSharesOneRangeAndSumTermsDoNot) {
  for (const Target target : {Target::ort, Target::tensorrt}) {
    const auto model = joining_net(target);
    const auto set_weight = [&](const char* layer, float value) {
      const auto& conv = dynamic_cast<Conv2d&>(model->at(layer));
      Variable weight = conv.weight(), bias = conv.bias();
      weight.mutable_tensor().copy_from(Tensor::full({4, 1, 1, 1}, value));
      bias.mutable_tensor().copy_from(Tensor::zeros({4}));
    };
    set_weight("a", 1);
    set_weight("b", 3);
    DataLoader data = loader(Tensor::full({8, 1, 8, 8}, 2));
    calibrate(*model, data);
    auto& joined = quantizer(*model, "c.input_quantizer");
    for (const char* path : {"cat.input_quantizer", "cat.input_quantizer_1", "add.input_quantizer_1"})
      EXPECT_EQ(&quantizer(*model, path), &joined) << path;  // a is in the concatenation too
    EXPECT_NE(&quantizer(*model, "add.input_quantizer"), &joined);
    EXPECT_EQ(joined.amax().item(), 6);
    EXPECT_EQ(quantizer(*model, "a.input_quantizer").amax().item(), 2);
    EXPECT_EQ(&quantizer(*model, "a.input_quantizer"), &quantizer(*model, "b.input_quantizer"));
  }
}

TEST(CalibrationRules, MergedHalvesMatchOneRun) {
  const Tensor images = random_tensor({32, 1, 8, 8}, 0, 1);
  const auto whole = net("percentile"), parts = net("percentile");
  const auto from = whole->named_parameters();
  auto to = parts->named_parameters();
  for (std::size_t i = 0; i < from.size(); ++i)
    to[i].second.mutable_tensor().copy_from(from[i].second.tensor());
  DataLoader all = loader(images), first = loader(images.slice(0, 16)), second = loader(images.slice(16, 32));
  calibrate(*whole, all);
  collect_ranges(*parts, first);
  EXPECT_FALSE(quantizer(*parts, "fc.input_quantizer").amax().defined());
  collect_ranges(*parts, second, {.keep_collected = true});
  EXPECT_GT(choose_ranges(*parts).quantizers, 0);
  for (const char* path : {"conv1.input_quantizer", "conv2.input_quantizer", "fc.input_quantizer"})
    EXPECT_TRUE(bitwise_equal(quantizer(*whole, path).amax(), quantizer(*parts, path).amax())) << path;
}

TEST(CalibrationRules, ZerosGiveZeroRangesByEveryMethod) {
  for (const auto& method : QuantDescriptor::calib_methods()) {
    if (method == "scale_sweep") continue;  // for blocks of weights
    const auto model = net("max");
    DataLoader data = loader(Tensor::zeros({16, 1, 8, 8}));
    calibrate(*model, data, {.method = std::string(method)});
    EXPECT_EQ(quantizer(*model, "conv1.input_quantizer").amax().item(), 0) << method;
    model->eval();
    const NoGrad no_grad;
    for (const float v : (*model)(Variable(Tensor::zeros(kInput))).tensor().to_vector<float>())
      EXPECT_TRUE(std::isfinite(v)) << method;
  }
}

}  // namespace
}  // namespace fq::calibration_rules_test
