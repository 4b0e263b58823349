#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

#include "fakequant/core/error.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/train/calibration/calibrate.h"
#include "fakequant/train/data/hdf5_dataset.h"
#include "fakequant/train/loop/checkpoint.h"
#include "layers/networks.h"
#include "thrown.h"
#include "train/loop_run.h"

namespace fq::calibration_state_test {
namespace {

using namespace test;

constexpr int kImages = 96;

std::shared_ptr<Graph> net(const std::string& method) {
  auto model = residual_net();
  for (auto& [name, value] : model->named_parameters()) {
    Variable parameter = value;
    parameter.mutable_tensor().copy_from(random_tensor(value.shape(), -0.5f, 0.5f, 7));
  }
  QuantConfig config = QuantConfig::preset("int8");
  config.algorithm = method;
  quantize(*model, config, {1, 1, 8, 8});
  return model;
}

std::shared_ptr<const Dataset> digits() {
  static const auto data = std::make_shared<Hdf5Dataset>(FAKEQUANT_SOURCE_DIR "/data/digits.h5");
  return data;
}

void collect(Module& model, std::vector<std::int64_t> rows, std::int64_t batch, bool add = false) {
  std::ranges::sort(rows);
  DataLoader data(std::make_shared<Subset>(digits(), std::move(rows)),
                  {.batch_size = batch, .shuffle = false});
  collect_ranges(model, data, {.keep_collected = add});
}

std::vector<std::int64_t> rows(std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> out;
  for (auto i = begin; i < end; ++i) out.push_back(i);
  return out;
}

TEST(CalibrationState, ResumesBitwise) {
  const Folder folder;
  for (const char* method : {"max", "moving_average", "percentile"}) {
    const std::string path = folder.file(std::string(method) + ".h5");
    const auto whole = net(method), first = net(method), second = net(method);
    collect(*whole, rows(0, 64), 16);
    collect(*first, rows(0, 32), 16);
    save_calibration(*first, path, 32);
    EXPECT_EQ(load_calibration(*second, path), 32);
    collect(*second, rows(32, 64), 16, true);
    EXPECT_TRUE(bitwise_equal(calibration_state(*whole), calibration_state(*second))) << method;
  }
}

TEST(CalibrationState, MergedPartsMatchOneRunForRandomSplits) {
  std::mt19937 random(5);
  for (const char* method : {"max", "one_pass", "one_pass_entropy", "one_pass_mse"}) {
    const auto whole = net(method);
    collect(*whole, rows(0, kImages), 32);
    choose_ranges(*whole);
    const StateDict expected = calibration_state(*whole);
    for (int trial = 0; trial < 4; ++trial) {
      auto order = rows(0, kImages);
      std::ranges::shuffle(order, random);
      const auto cut = 1 + static_cast<std::ptrdiff_t>(random() % (kImages - 1));
      const auto a = net(method), b = net(method);
      collect(*a, {order.begin(), order.begin() + cut}, 1 + random() % 40);
      collect(*b, {order.begin() + cut, order.end()}, 1 + random() % 40);
      merge_calibration_state(*a, calibration_state(*b), "b.h5");
      EXPECT_TRUE(bitwise_equal(calibration_state(*a), expected)) << method << ", " << cut;
      choose_ranges(*a);
      for (const auto& [name, q, aliases] : named_quantizers(*whole)) {
        if (!q->amax().defined()) continue;
        EXPECT_TRUE(bitwise_equal(q->amax(), dynamic_cast<TensorQuantizer&>(a->at(name)).amax())) << name;
      }
    }
  }
}

TEST(CalibrationState, RejectsMergingOrderDependentMethods) {
  const auto a = net("moving_average"), b = net("moving_average");
  collect(*a, rows(0, 32), 16);
  collect(*b, rows(32, 64), 16);
  const StateDict before = calibration_state(*a);
  EXPECT_NE(test::error_message<FileError>([&] {
              merge_calibration_state(*a, calibration_state(*b), "b.h5");
            }).find("conv1.input"),
            std::string::npos);
  EXPECT_TRUE(bitwise_equal(calibration_state(*a), before));
}

TEST(CalibrationState, BlocksKeepTheirAxes) {
  const auto descriptor = QuantDescriptor::from_dict({{"block_sizes", {{"-1", 4}}}});
  TensorQuantizer first(descriptor), second(descriptor);
  const Tensor a = random_tensor({2, 8}, 0, 1), b = random_tensor({2, 8}, 0, 2, 2);
  first.observer().collect(a);
  StateDict state;
  first.observer().save(state, "q");
  second.observer().load(state, "q");
  first.observer().collect(b);
  second.observer().collect(b);
  EXPECT_TRUE(bitwise_equal(first.observer().calibrator().compute_amax(),
                            second.observer().calibrator().compute_amax()));
}

TEST(CalibrationState, IsSavedInCheckpoints) {
  const auto model = net("percentile"), other = net("max");
  collect(*model, rows(0, 32), 16);
  load_model_state(*other, model_state(*model, nullptr), "some.h5");
  EXPECT_TRUE(bitwise_equal(calibration_state(*model), calibration_state(*other)));
}

TEST(CalibrationState, RejectsTheStateOfAnotherModelWithoutChange) {
  const Folder folder;
  const std::string path = folder.file("state.h5");
  const auto model = net("max");
  collect(*model, rows(0, 32), 16);
  const StateDict before = calibration_state(*model);

  const auto other_weights = net("max");
  Variable weight = other_weights->named_parameters().front().second;
  weight.mutable_tensor().mutable_data<float>()[0] += 1;
  collect(*other_weights, rows(0, 32), 16);
  save_calibration(*other_weights, path);
  EXPECT_NE(test::error_message<FileError>([&] { load_calibration(*model, path); }).find("conv1.weight"),
            std::string::npos);

  const auto other_method = net("max");
  set_quantizer_attributes(*other_method, "fc.input_quantizer", {{"calib_method", "entropy"}});
  collect(*other_method, rows(0, 32), 16);
  save_calibration(*other_method, path);
  EXPECT_NE(
      test::error_message<FileError>([&] { load_calibration(*model, path); }).find("fc.input_quantizer"),
      std::string::npos);

  const auto fewer = net("max");
  disable_quantizer(*fewer, "conv2.input_quantizer");
  collect(*fewer, rows(0, 32), 16);
  save_calibration(*fewer, path);
  EXPECT_NE(
      test::error_message<FileError>([&] { load_calibration(*model, path); }).find("conv2.input_quantizer"),
      std::string::npos);
  save_calibration(*model, path);
  EXPECT_NE(
      test::error_message<FileError>([&] { load_calibration(*fewer, path); }).find("conv2.input_quantizer"),
      std::string::npos);
  EXPECT_TRUE(bitwise_equal(calibration_state(*model), before));
}

TEST(CalibrationState, RejectsDamagedAndOtherFiles) {
  const Folder folder;
  const std::string path = folder.file("state.h5");
  const auto model = net("percentile");
  collect(*model, rows(0, 32), 16);
  const StateDict before = calibration_state(*model);
  EXPECT_THROW(load_calibration(*model, folder.file("missing.h5")), FileError);
  save_checkpoint(path, model_state(*model, nullptr));
  EXPECT_THROW(load_calibration(*model, path), FileError);
  StateDict hostile = before;
  for (const auto& name : before.names())
    if (name.ends_with("fc.input_quantizer/calibrator/counts"))
      hostile.set(name, Tensor::full(before.at(name).shape(), -1, DType::i64));
  save_state(path, hostile, "calibration");
  EXPECT_NE(
      test::error_message<FileError>([&] { load_calibration(*model, path); }).find("fc.input_quantizer"),
      std::string::npos);
  for (const char* key :
       {"samples", "parameters", "quantizers/fc.input_quantizer/settings",
        "quantizers/fc.input_quantizer/calibrator_options", "quantizers/fc.input_quantizer/calibrator/method",
        "quantizers/fc.input_quantizer/calibrator/minimum"}) {
    StateDict odd = before;
    odd.set_attribute(key, "odd");
    save_state(path, odd, "calibration");
    EXPECT_NE(test::error_message<FileError>([&] { load_calibration(*model, path); }), "") << key;
  }
  EXPECT_TRUE(bitwise_equal(calibration_state(*model), before));
}

TEST(CalibrationState, AFailingBatchKeepsTheStatistics) {
  const auto model = net("percentile");
  collect(*model, rows(0, 32), 16);
  const StateDict before = calibration_state(*model);
  Tensor images = random_tensor({32, 1, 8, 8}, 0, 1);
  images.mutable_data<float>()[20 * 64] = std::numeric_limits<float>::infinity();
  DataLoader bad(std::make_shared<TensorDataset>(images), {.batch_size = 8, .shuffle = false});
  for (const bool add : {false, true}) {
    try {
      collect_ranges(*model, bad, {.keep_collected = add});
      FAIL() << "an infinity was accepted";
    } catch (const NumericError& error) {
      EXPECT_NE(std::string(error.what()).find("conv1.input_quantizer"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("batch 2"), std::string::npos) << error.what();
    }
    EXPECT_TRUE(bitwise_equal(calibration_state(*model), before));
  }
}

/// Two shapes, which no file can hold.
class Uneven final : public Dataset {
 public:
  [[nodiscard]] std::int64_t size() const noexcept override { return 16; }
  [[nodiscard]] const Shape& sample_shape() const noexcept override { return shape_; }
  [[nodiscard]] std::int64_t classes() const noexcept override { return 0; }
  [[nodiscard]] Batch read(std::span<const std::int64_t> rows) const override {
    const std::int64_t side = rows.front() < 8 ? 8 : 10;
    return {Tensor::zeros({static_cast<std::int64_t>(rows.size()), 1, side, side}), {}};
  }

 private:
  Shape shape_{1, 8, 8};
};

TEST(CalibrationState, RejectsALaterBatchOfAnotherShape) {
  const auto model = net("max");
  DataLoader data(std::make_shared<Uneven>(), {.batch_size = 4, .shuffle = false});
  try {
    collect_ranges(*model, data);
    FAIL();
  } catch (const ArgumentError& error) {
    EXPECT_NE(std::string(error.what()).find("batch 2"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace fq::calibration_state_test
