#include <gmock/gmock.h>

#include "fakequant/core/error.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/train/calibration/calibrate.h"
#include "fakequant/train/losses.h"
#include "train/loop_run.h"

namespace fq::own_loss_test {
namespace {

using test::sequential_options;
using test::shuffled;
using ::testing::HasSubstr;

/// Two numbers of each image: the mean of its upper and of its lower half.
std::shared_ptr<const Dataset> halves(std::int64_t count, std::uint64_t seed) {
  Tensor x = Tensor::empty({count, 1, 8, 8}), y = Tensor::zeros({count, 2});
  fill_uniform(x, -1, 1, seed);
  const auto* pixels = x.data<float>();
  auto* means = y.mutable_data<float>();
  for (std::int64_t i = 0; i < x.numel(); ++i) means[i / 32] += pixels[i] / 4;
  return std::make_shared<TensorDataset>(x, y);
}

/// Images whose pixels belong to one of two classes by their sign.
std::shared_ptr<const Dataset> signs(std::int64_t count, std::uint64_t seed) {
  Tensor x = Tensor::empty({count, 1, 8, 8}), y = Tensor::empty({count, 8, 8}, DType::i64);
  fill_uniform(x, -1, 1, seed);
  for (std::int64_t i = 0; i < x.numel(); ++i)
    y.mutable_data<std::int64_t>()[i] = x.data<float>()[i] > 0 ? 1 : 0;
  return std::make_shared<TensorDataset>(x, y);
}

std::shared_ptr<Module> regressor() {
  const RandomScope seed(3, 0);
  auto model = std::make_shared<Sequential>();
  model->add("flat", make_flatten()).add("out", std::make_shared<Linear>(64, 2));
  return model;
}

std::shared_ptr<Module> segmenter() {
  const RandomScope seed(3, 0);
  const ops::ConvOptions same{.stride = {}, .padding = {1}, .dilation = {}, .groups = 1};
  auto model = std::make_shared<Sequential>();
  model->add("first", std::make_shared<Conv2d>(1, 8, Shape{3}, same))
      .add("relu", make_relu())
      .add("out", std::make_shared<Conv2d>(8, 2, Shape{1}));
  return model;
}

TrainerOptions make_options(Loss loss) {
  TrainerOptions options;
  options.epochs = 6;
  options.objective.loss = std::move(loss);
  options.optimizer.learning_rate = 0.02;
  return options;
}

LoaderOptions batches() { return {.batch_size = 16, .seed = 5, .prefetch = 0}; }

Loss huber() {
  return [](const Variable& y, const Tensor& labels) { return losses::huber(y, labels); };
}

TEST(CustomLoss, LearnsRegression) {
  auto model = regressor();
  const auto data = halves(256, 1), held_out = halves(64, 2);
  DataLoader test(held_out, sequential_options());
  const double before = evaluate(*model, test, nullptr, huber()).loss;
  Trainer trainer(model, std::make_shared<DataLoader>(data, batches()), make_options(huber()),
                  std::make_shared<DataLoader>(held_out, sequential_options()));
  const auto result = trainer.fit();
  const auto after = evaluate(*model, test, nullptr, huber());
  EXPECT_LT(after.loss, 0.05 * before);
  EXPECT_EQ(after.count, 64);
  EXPECT_EQ(after.accuracy, 0.0);
  EXPECT_EQ(result.validation->loss, after.loss);
  EXPECT_EQ(result.best_epoch, 5);
}

TEST(CustomLoss, LearnsPixelsInQuantizedNetworks) {
  const Loss loss = [](const Variable& y, const Tensor& labels) {
    return losses::cross_entropy(y, labels, {});
  };
  auto model = segmenter();
  const auto data = signs(128, 1);
  const auto loader = std::make_shared<DataLoader>(data, batches());
  Trainer(model, loader, make_options(loss)).fit();
  quantize(*model, QuantConfig::preset("int8"), {1, 1, 8, 8});
  calibrate(*model, *loader);
  DataLoader test(data, sequential_options());
  const double calibrated = evaluate(*model, test, nullptr, loss).loss;
  Trainer(model, loader, make_options(loss)).fit();
  EXPECT_LT(evaluate(*model, test, nullptr, loss).loss, calibrated);
}

TEST(CustomLoss, ResumesBitwise) {
  const test::Folder folder;
  const auto data = halves(96, 1);
  const auto run = [&](std::int64_t epochs, const std::string& from) {
    auto options = make_options(huber());
    options.epochs = epochs;
    options.checkpoint.out = folder.file("run.h5");
    auto model = regressor();
    Trainer trainer(model, std::make_shared<DataLoader>(data, batches()), options);
    if (!from.empty()) trainer.resume(load_state(from, "checkpoint"), from);
    trainer.fit();
    return model->parameters()[0].tensor().to_vector<float>();
  };
  const auto whole = run(4, "");
  run(2, "");
  EXPECT_EQ(run(4, folder.file("run.h5")), whole);
}

TEST(CustomLoss, RejectsMismatchedInput) {
  const auto data = halves(32, 1);
  const auto message = [&](Loss loss) {
    try {
      Trainer(regressor(), std::make_shared<DataLoader>(data, batches()), make_options(std::move(loss)))
          .fit();
    } catch (const ArgumentError& error) {
      return std::string(error.what());
    }
    return std::string("nothing was refused");
  };
  EXPECT_THAT(message({}), HasSubstr("a loss for these labels"));
  EXPECT_THAT(message([](const Variable& y, const Tensor&) { return y; }),
              HasSubstr("it must be one number"));
  EXPECT_THROW(TensorDataset(Tensor::zeros({2, 3}), Tensor::zeros({3, 1})), ArgumentError);
}

}  // namespace
}  // namespace fq::own_loss_test
