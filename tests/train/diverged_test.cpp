#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "fakequant/core/error.h"
#include "fakequant/core/ops/ops.h"
#include "fakequant/train/loop/checkpoint.h"
#include "fakequant/train/loop/detail/finite.h"
#include "fakequant/train/loop/evaluate.h"
#include "thrown.h"
#include "train/loop_run.h"

namespace fq::diverged_test {
namespace {

using test::Folder;
using test::Plan;

constexpr double kInf = std::numeric_limits<double>::infinity();

/// After its last step the weights are infinite, and no loss was.
Plan sudden(std::int64_t good_epochs) {
  Plan run;
  run.options.epochs = good_epochs + 1;
  run.options.update.average_decay = 0;
  run.options.update.clip_norm = 0;
  run.options.optimizer = {.kind = "sgd", .learning_rate = 0.01, .momentum = 0};
  run.options.schedule = {.kind = "step", .step_every = 6 * good_epochs + 5, .step_factor = 1e300};
  run.options.optimizer.weight_decay = 1e-3;
  return run;
}

std::string failure(const Plan& run) {
  try {
    run.make()->fit();
  } catch (const NumericError& error) {
    return error.what();
  }
  return "no failure";
}

TEST(Diverged, NamesTheTensorWithoutAFile) {
  const std::string message = failure(sudden(0));
  EXPECT_TRUE(message.starts_with("[train] parameters/")) << message;
  EXPECT_NE(message.find("(step 6, epoch 1)"), std::string::npos) << message;
}

TEST(Diverged, KeepsTheLastFiniteCheckpoint) {
  const Folder folder;
  for (const std::int64_t save_every : {0, 1}) {
    Plan run = sudden(1);
    run.options.checkpoint.out = folder.file("run.h5");
    run.options.checkpoint.save_every = save_every;
    const std::string message = failure(run);
    const StateDict saved = load_checkpoint(run.options.checkpoint.out);
    EXPECT_FALSE(detail::find_not_finite(saved.tensors()).has_value());
    EXPECT_EQ(saved.attribute("progress/step"), save_every == 0 ? 6 : 11);
    const std::string expected =
        save_every == 0 ? "run.h5 is of the end of epoch 1" : "run.h5 is of step 11, in epoch 2";
    EXPECT_NE(message.find(expected), std::string::npos) << message;
    EXPECT_FALSE(
        detail::find_not_finite(load_checkpoint(best_checkpoint_path(run.options.checkpoint.out)).tensors()));
  }
}

TEST(Diverged, FindsTheFirstNonFiniteElement) {
  const auto holds = [](DType dtype, double value) {
    std::vector<float> values(300, 1.0f);
    values[257] = static_cast<float>(value);
    return std::vector<StateDict::Entry>{{"a", Tensor::full({2}, 1, dtype)},
                                         {"b", Tensor::from(values, {3, 100}).to(dtype)}};
  };
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    EXPECT_FALSE(detail::find_not_finite(holds(dtype, -2)).has_value());
    for (const double value : {kInf, -kInf, std::nan("")}) {
      const auto found = detail::find_not_finite(holds(dtype, value));
      ASSERT_TRUE(found.has_value()) << name(dtype) << value;
      EXPECT_EQ(found->name, "b");
      EXPECT_EQ(found->index, 257);
    }
  }
  EXPECT_FALSE(detail::find_not_finite({{"huge", Tensor::scalar(1e300, DType::f64)}}).has_value());
  EXPECT_FALSE(detail::find_not_finite({{"q/calibrator/low", Tensor::scalar(kInf)}}).has_value());
  EXPECT_FALSE(detail::find_not_finite({{"codes", Tensor::zeros({3}, DType::i8)}}).has_value());
}

TEST(Diverged, IgnoresEpochsWithoutALoss) {
  EarlyStopping early;
  EXPECT_FALSE(early.update({.loss = std::nan(""), .score = 0.9}));
  EXPECT_FALSE(early.update({.loss = kInf, .score = 0.9}));
  EXPECT_EQ(early.best_epoch(), -1);
  EXPECT_TRUE(early.update({.loss = 2, .score = 0.1}));
  EXPECT_FALSE(early.update({.loss = kInf, .score = 0.9}));
  EXPECT_EQ(early.best_epoch(), 2);
}

TEST(Diverged, RejectsAndNeverWritesNonFiniteFiles) {
  const Folder folder;
  const std::string path = folder.file("model.h5");
  for (const char* name : {"parameters/fc.weight", "buffers/bn.running_var"}) {
    const auto model = test::small_network(false), other = test::small_network(false);
    save_checkpoint(path, model_state(*model, nullptr));
    StateDict state = model_state(*other, nullptr);
    Tensor(state.at(name)).mutable_data<float>()[1] = NAN;
    EXPECT_THROW(save_checkpoint(path, state), NumericError);
    EXPECT_TRUE(bitwise_equal(load_checkpoint(path), model_state(*model, nullptr)));
    try {
      load_model_state(*model, state, path);
      FAIL() << name;
    } catch (const FileError& error) {
      EXPECT_EQ(error.dataset(), name);
    }
    EXPECT_TRUE(bitwise_equal(load_checkpoint(path), model_state(*model, nullptr))) << "it was changed";
  }
}

std::shared_ptr<const Dataset> quadrants_containing(double value, std::int64_t row) {
  const auto good = test::quadrants(96, 1);
  std::vector<std::int64_t> rows(96);
  std::iota(rows.begin(), rows.end(), 0);
  Batch all = good->read(rows);
  all.x.mutable_data<float>()[row * 64 + 5] = static_cast<float>(value);
  return std::make_shared<TensorDataset>(all.x, all.y);
}

LoaderOptions plain() { return {.batch_size = 16, .seed = 5, .prefetch = 0}; }

TrainerOptions short_run() {
  return {.epochs = 2, .optimizer = {.learning_rate = 5e-3}, .execution = {.backward = BackwardType::fp32}};
}

bool finite(Module& model) {
  return !detail::find_not_finite(model_state(model, nullptr).tensors()).has_value();
}

TEST(Diverged, NamesTheSampleAndKeepsWeightsFinite) {
  for (const bool quantized : {false, true}) {
    for (const double value : {std::nan(""), kInf}) {
      const auto model = test::small_network(quantized);
      visit_quantizers(*model, [](const NamedQuantizer& q) { q.quantizer->set_amax(Tensor::scalar(2)); });
      const std::string message = test::error_message<NumericError>([&] {
        return Trainer(model, std::make_shared<DataLoader>(quadrants_containing(value, 37), plain()),
                       short_run())
            .fit();
      });
      EXPECT_NE(message.find("x of sample 37 of the data has"), std::string::npos) << message;
      EXPECT_EQ(message.find("learning rate"), std::string::npos) << message;
      EXPECT_TRUE(finite(*model)) << message;
      for (const auto& parameter : model->parameters()) EXPECT_FALSE(parameter.grad().defined());
      EXPECT_NO_THROW(
          Trainer(model, std::make_shared<DataLoader>(test::quadrants(96, 1), plain()), short_run()).fit());
      EXPECT_TRUE(finite(*model));
    }
  }
}

TEST(Diverged, RunStartsWithClearedGradients) {
  const auto run = [](bool before) {
    const auto model = test::small_network(false, 0);
    if (before) {
      const Batch batch = test::quadrants(8, 3)->read(std::vector<std::int64_t>{0, 1, 2});
      model->eval();
      ops::cross_entropy((*model)(batch.x), batch.y).backward();
    }
    Trainer(model, std::make_shared<DataLoader>(test::quadrants(96, 1), plain()), short_run()).fit();
    return model_state(*model, nullptr);
  };
  EXPECT_TRUE(bitwise_equal(run(false), run(true)));
}

TEST(Diverged, SkipsAStepWithInfiniteGradients) {
  const auto model = test::small_network(false, 0);
  TrainerOptions options = short_run();
  options.objective.loss = [](const Variable& logits, const Tensor& y) {
    return ops::add(ops::cross_entropy(logits, y),
                    ops::scale(ops::sum(ops::sqrt(ops::scale(logits, 0))), 1));  // a slope of infinity at 0
  };
  const std::string message = test::error_message<NumericError>([&] {
    return Trainer(model, std::make_shared<DataLoader>(test::quadrants(96, 1), plain()), options).fit();
  });
  EXPECT_NE(message.find("gradient"), std::string::npos) << message;
  EXPECT_TRUE(finite(*model));
}

TEST(Diverged, EvaluationNamesTheSampleWithoutAccuracy) {
  const auto model = test::small_network(false);
  DataLoader bad(quadrants_containing(std::nan(""), 37), test::sequential_options());
  const std::string message = test::error_message<NumericError>([&] { return evaluate(*model, bad); });
  EXPECT_NE(message.find("sample 37"), std::string::npos) << message;
  EXPECT_TRUE(std::isnan(predict(*model, bad).to_vector<float>()[37 * 4]));
  model->parameters().front().mutable_tensor().mutable_data<float>()[0] = NAN;
  DataLoader good(test::quadrants(40, 2), test::sequential_options());
  EXPECT_THROW((void)evaluate(*model, good), NumericError);
}

}  // namespace
}  // namespace fq::diverged_test
