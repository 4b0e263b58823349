#include <limits>
#include <nlohmann/json.hpp>

#include "fakequant/core/error.h"
#include "fakequant/train/loop/checkpoint.h"
#include "fakequant/train/loop/detail/finite.h"
#include "fakequant/train/loop/evaluate.h"
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
  run.options.average_decay = 0;
  run.options.clip_norm = 0;
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

TEST(Diverged, RunsWithoutAFileSayWhichTensor) {
  const std::string message = failure(sudden(0));
  EXPECT_TRUE(message.starts_with("[train] parameters/")) << message;
  EXPECT_NE(message.find("(step 6, epoch 1)"), std::string::npos) << message;
}

TEST(Diverged, TheLastGoodCheckpointStays) {
  const Folder folder;
  for (const std::int64_t save_every : {0, 1}) {
    Plan run = sudden(1);
    run.options.out = folder.file("run.h5");
    run.options.save_every = save_every;
    const std::string message = failure(run);
    const StateDict kept = load_checkpoint(run.options.out);
    EXPECT_FALSE(detail::find_not_finite(kept.tensors()).has_value());
    EXPECT_EQ(kept.attribute("progress/step"), save_every == 0 ? 6 : 11);
    const std::string says =
        save_every == 0 ? "run.h5 is of the end of epoch 1" : "run.h5 is of step 11, in epoch 2";
    EXPECT_NE(message.find(says), std::string::npos) << message;
    EXPECT_FALSE(detail::find_not_finite(load_checkpoint(best_checkpoint_path(run.options.out)).tensors()));
  }
}

TEST(Diverged, TheFirstBadElementOfAnyFloatIsFound) {
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

TEST(Diverged, NoEpochWithoutALossIsTheBest) {
  EarlyStopping early;
  EXPECT_FALSE(early.update({.loss = std::nan(""), .score = 0.9}));
  EXPECT_FALSE(early.update({.loss = kInf, .score = 0.9}));
  EXPECT_EQ(early.best_epoch(), -1);
  EXPECT_TRUE(early.update({.loss = 2, .score = 0.1}));
  EXPECT_FALSE(early.update({.loss = kInf, .score = 0.9}));
  EXPECT_EQ(early.best_epoch(), 2);
}

TEST(Diverged, FilesOfItAreRefusedAndNotWritten) {
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

}  // namespace
}  // namespace fq::diverged_test
