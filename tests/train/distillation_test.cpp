#include <cmath>

#include <gmock/gmock.h>

#include "fakequant/core/error.h"
#include "fakequant/train/loop/checkpoint.h"
#include "fakequant/train/losses.h"
#include "train/loop_run.h"

namespace fq::distillation_test {
namespace {

using test::Folder;
using test::Plan;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

double loss(const std::vector<float>& y, const std::vector<float>& t, const Shape& shape,
            const DistillationOptions& options) {
  return distillation_loss(Variable(Tensor::from(y, shape)), Tensor::from(t, shape), options).tensor().item();
}

TEST(Distillation, KlUsesSoftenedClasses) {
  const float three = std::log(3.0f);  // shares of a quarter and three quarters
  const double expected = 0.5 * std::log(0.5 / 0.25) + 0.5 * std::log(0.5 / 0.75);
  EXPECT_NEAR(loss({0, three}, {0, 0}, {1, 2}, {.temperature = 1}), expected, 1e-6);
  EXPECT_NEAR(loss({0, 2 * three}, {5, 5}, {1, 2}, {.temperature = 2}), 4 * expected, 1e-6);
  EXPECT_NEAR(loss({1, 2, 3}, {1, 2, 3}, {1, 3}, {.temperature = 3}), 0, 1e-6);
}

TEST(Distillation, ClassesAreOnTheSecondAxis) {
  // [1, 2, 2]: two places, the first alike, the second as above.
  const float three = std::log(3.0f);
  const double expected = 0.5 * std::log(0.5 / 0.25) + 0.5 * std::log(0.5 / 0.75);
  EXPECT_NEAR(loss({1, 0, 1, three}, {1, 0, 1, 0}, {1, 2, 2}, {.temperature = 1}), expected / 2, 1e-6);
}

TEST(Distillation, GradientsDoNotShrinkWithTheTemperature) {
  for (const double t : {1.0, 2.0, 4.0}) {
    const Variable y(Tensor::from(std::vector<float>{0.5f, -1, 2}, {1, 3}), true);
    const Tensor targets = Tensor::from(std::vector<float>{1, 1, 0}, {1, 3});
    distillation_loss(y, targets, {.temperature = t}).backward();
    double sum_q = 0, sum_p = 0;
    const std::vector<double> a{0.5, -1, 2}, b{1, 1, 0};
    for (std::size_t i = 0; i < 3; ++i) {
      sum_q += std::exp(a[i] / t);
      sum_p += std::exp(b[i] / t);
    }
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_NEAR(y.grad().data<float>()[i], t * (std::exp(a[i] / t) / sum_q - std::exp(b[i] / t) / sum_p),
                  1e-5);
  }
}

TEST(Distillation, MseComparesLogits) { EXPECT_DOUBLE_EQ(loss({1, 2}, {1, 4}, {2}, {.kind = "mse"}), 2); }

TEST(Distillation, RejectsMismatchedInput) {
  EXPECT_THAT(
      [] {
        (void)loss({1, 2}, {1, 2}, {1, 2}, {.kind = "kll"});
      },
      ThrowsMessage<ArgumentError>(HasSubstr("did you mean 'kl'")));
  EXPECT_THAT(
      [] {
        (void)loss({1, 2}, {1, 2}, {1, 2}, {.temperature = 0});
      },
      ThrowsMessage<ArgumentError>(HasSubstr("the temperature is 0")));
  EXPECT_THAT(
      [] {
        (void)loss({1, 2}, {1, 2}, {1, 2}, {.weight = 1.5});
      },
      ThrowsMessage<ArgumentError>(HasSubstr("the weight is 1.5")));
  EXPECT_THAT(
      [] {
        (void)loss({1, 2}, {1, 2}, {2}, {});
      },
      ThrowsMessage<ArgumentError>(HasSubstr("use mse for numbers")));
  EXPECT_THAT(
      [] {
        (void)distillation_loss(Variable(Tensor::zeros({2, 3})), Tensor::zeros({2, 4}), {});
      },
      ThrowsMessage<ArgumentError>(HasSubstr("a teacher with the same shape of outputs")));
}

/// A short run whose samples are changed in each epoch, or are always the same.
Plan make_run(bool augments, double weight) {
  Plan run;
  run.quantized = true;
  run.options.objective.distillation = {
      .teacher = test::small_network(false), .kind = "kl", .temperature = 2, .weight = weight};
  if (!augments) run.loader.augment = {};
  return run;
}

StateDict trained(const Plan& run) {
  const auto trainer = run.make();
  trainer->fit();
  return trainer->state_dict();
}

TEST(Distillation, FullWeightIgnoresLabels) {
  Plan run = make_run(false, 1);
  run.validate = false;
  const auto parameters = [](const StateDict& state) { return state.sub("parameters"); };
  const StateDict smooth = trained(run);
  run.options.objective.label_smoothing = 0.4;
  EXPECT_TRUE(bitwise_equal(parameters(trained(run)), parameters(smooth)));
  run.options.objective.distillation.weight = 0.5;
  EXPECT_FALSE(bitwise_equal(parameters(trained(run)), parameters(smooth)));
}

TEST(Distillation, ResumesBitwise) {
  for (const bool augments : {false, true}) {
    const Folder folder;
    Plan run = make_run(augments, 0.7);
    const StateDict expected = trained(run);
    run.options.checkpoint.out = folder.file("run.h5");
    std::atomic<bool> stop = false;
    run.options.execution.stop = &stop;
    Plan first = run;
    first.callbacks.on_step = [&](const StepReport& report) { stop = report.step == 8; };
    ASSERT_TRUE(first.make()->fit().stopped);
    stop = false;
    const auto rest = run.make();
    rest->resume(load_checkpoint(run.options.checkpoint.out), run.options.checkpoint.out);
    rest->fit();
    EXPECT_TRUE(bitwise_equal(rest->state_dict(), expected)) << (augments ? "augmented" : "kept");
  }
}

/// The small network, which counts the samples that it sees.
class Counted : public Module {
 public:
  Counted() : network_(add_module("network", test::small_network(false))) {}
  std::int64_t samples = 0;

 protected:
  Variable forward(const Variable& x) override {
    samples += x.tensor().dim(0);
    return network_(x);
  }
  using Module::forward;

 private:
  Child<Module> network_;
};

TEST(Distillation, TeacherOutputsAreComputedOnceOnDemand) {
  for (const auto& [steps, samples] : {std::pair{18, 96}, {6, 96}, {1, 16}}) {
    const auto teacher = std::make_shared<Counted>();
    Plan run = make_run(false, 0.7);
    run.options.objective.distillation.teacher = teacher;
    run.options.steps = steps;
    run.loader.shuffle = steps > 1;
    run.make()->fit();
    EXPECT_EQ(teacher->samples, samples) << steps << " steps of 16 samples";
  }
}

TEST(Distillation, ResumeRequiresTheSameTeacher) {
  const Folder folder;
  Plan run = make_run(false, 0.7);
  run.options.checkpoint.out = folder.file("run.h5");
  run.options.epochs = 1;
  run.make()->fit();
  const auto resume = [&run] {
    run.make()->resume(load_checkpoint(run.options.checkpoint.out), run.options.checkpoint.out);
  };
  EXPECT_NO_THROW(resume());
  run.options.objective.distillation.teacher->parameters()
      .front()
      .mutable_tensor()
      .mutable_data<float>()[0] += 1;
  EXPECT_THAT(resume, ThrowsMessage<ArgumentError>(HasSubstr("with another teacher")));
  run.options.objective.distillation.weight = 0.5;
  EXPECT_THAT(resume, ThrowsMessage<ArgumentError>(HasSubstr("teacher_weight is 0.7 there, 0.5 here")));
  run.options.objective.distillation = {};
  EXPECT_THAT(resume, ThrowsMessage<ArgumentError>(HasSubstr("distillation is kl there, none here")));
}

TEST(Distillation, RejectsATeacherOfOtherOutputs) {
  Plan run = make_run(false, 0.7);
  auto other = std::make_shared<Sequential>();
  other->add("flat", make_flatten()).add("fc", std::make_shared<Linear>(64, 5));
  run.options.objective.distillation.teacher = other;
  const auto trainer = run.make();
  EXPECT_THAT([&] { trainer->fit(); }, ThrowsMessage<ArgumentError>(HasSubstr("same shape of outputs")));
}

}  // namespace
}  // namespace fq::distillation_test
