#include <nlohmann/json.hpp>

#include "fakequant/core/error.h"
#include "fakequant/train/loop/checkpoint.h"
#include "train/loop_run.h"

namespace fq::resume_checks_test {
namespace {

using test::Plan;

StateDict finished(const Plan& run) {
  const auto trainer = run.make();
  trainer->fit();
  return trainer->state_dict();
}

Plan one_epoch() {
  Plan run;
  run.options.epochs = 1;
  return run;
}

/// Returns the message of `resume`; empty if it accepts the state.
std::string error_text(const Plan& run, const StateDict& state) {
  try {
    run.make()->resume(state, "some.h5");
  } catch (const ArgumentError& error) {
    return error.what();
  }
  return {};
}

TEST(Resume, NamesEverySettingThatChangesBits) {
  const Plan run = one_epoch();
  const StateDict state = finished(run);
  EXPECT_EQ(error_text(run, state), "");
  const auto names = [&](const std::string& field, auto change) {
    Plan other = run;
    change(other);
    const std::string text = error_text(other, state);
    EXPECT_TRUE(text.starts_with("[resume] some.h5 is of a run with other settings: ")) << field << text;
    EXPECT_NE(text.find(field + " is "), std::string::npos) << text;
  };
  names("accumulation", [](Plan& r) { r.options.update.accumulation = 2; });
  names("clip_norm", [](Plan& r) { r.options.update.clip_norm = 1; });
  names("label_smoothing", [](Plan& r) { r.options.objective.label_smoothing = 0; });
  names("optimizer", [](Plan& r) { r.options.optimizer.kind = "sgd"; });
  names("learning_rate", [](Plan& r) { r.options.optimizer.learning_rate = 1e-3; });
  names("weight_decay", [](Plan& r) { r.options.optimizer.weight_decay = 0; });
  names("decay_all", [](Plan& r) { r.options.optimizer.decay_all = true; });
  names("beta1", [](Plan& r) { r.options.optimizer.beta1 = 0.8; });
  names("eps", [](Plan& r) { r.options.optimizer.eps = 1e-6; });
  names("schedule", [](Plan& r) { r.options.schedule.kind = "cosine"; });
  names("warm_up", [](Plan& r) { r.options.schedule.warm_up = 2; });
  names("rise", [](Plan& r) { r.options.schedule.rise = 0.5; });
  names("average_decay", [](Plan& r) { r.options.update.average_decay = 0.5; });
  names("seed", [](Plan& r) { r.options.seed = 12; });
  names("freeze_bn_after", [](Plan& r) { r.options.batch_norm.freeze_bn_after = 3; });
  names("quant_start", [](Plan& r) { r.options.ranges.quant_start = 3; });
  names("backward", [](Plan& r) { r.options.execution.backward = BackwardType::fp32; });
  names("batch_size", [](Plan& r) { r.loader.batch_size = 12; });
  names("shuffle", [](Plan& r) { r.loader.shuffle = false; });
  names("drop_last", [](Plan& r) { r.loader.drop_last = true; });
  names("loader_seed", [](Plan& r) { r.loader.seed = 6; });
  names("augment_shift", [](Plan& r) { r.loader.augment.shift = 0; });
  names("augment_hflip", [](Plan& r) { r.loader.augment.hflip = 0.5; });
  names("augment_mixup", [](Plan& r) { r.loader.augment.mixup = 0.2; });
  names("augment_randaugment_magnitude", [](Plan& r) { r.loader.augment.randaugment_magnitude = 5; });
  names("balanced", [](Plan& r) { r.loader.balanced = true; });
  names("class_weights", [](Plan& r) { r.loader.class_weights = {1, 2, 1, 1}; });
  names("validation_samples", [](Plan& r) { r.validate = false; });
}

TEST(Resume, ComparesRangeSettings) {
  Plan run = one_epoch();
  run.quantized = true;
  run.options.ranges.amax = AmaxMode::running;
  const StateDict state = finished(run);
  EXPECT_EQ(error_text(run, state), "");
  Plan other = run;
  other.options.ranges.amax_momentum = 0.5;
  EXPECT_NE(error_text(other, state).find("amax_momentum is 0.01 there, 0.5 here"), std::string::npos);
  other = run;
  other.options.ranges.amax = AmaxMode::frozen;
  EXPECT_NE(error_text(other, state).find("amax_mode is running there, frozen here"), std::string::npos);
}

TEST(Resume, AllowsSettingsThatKeepTheBits) {
  Plan run = one_epoch();
  const StateDict state = finished(run);
  run.options.epochs = 5;
  run.options.validation.patience = 2;
  run.options.checkpoint.save_every = 1;
  run.options.execution.capture = false;
  run.options.validation.restore_best = true;
  run.options.execution.checkpoint_blocks = "conv";
  run.loader.prefetch = 0;
  EXPECT_EQ(error_text(run, state), "");
}

TEST(Resume, OldFilesUseTheDefaultOfANewSetting) {
  const Plan run = one_epoch();
  StateDict state = finished(run);
  auto settings = state.attribute("progress/settings");
  for (const char* key : {"augment_mixup", "augment_hflip", "balanced", "class_weights", "number_labels"})
    settings.erase(key);
  settings["augment_flip"] = false;
  state.set_attribute("progress/settings", settings);
  EXPECT_EQ(error_text(run, state), "");
  Plan other = run;
  other.loader.augment.mixup = 0.5;
  EXPECT_NE(error_text(other, state).find("augment_mixup is 0.0 there, 0.5 here"), std::string::npos);
  other = run;
  other.loader.augment.hflip = 0.5;
  EXPECT_NE(error_text(other, state).find("augment_hflip is 0.0 there, 0.5 here"), std::string::npos);
  settings["augment_flip"] = true;
  state.set_attribute("progress/settings", settings);
  EXPECT_EQ(error_text(other, state), "");
}

TEST(Resume, AcceptsFilesWithoutSettings) {
  Plan run = one_epoch();
  StateDict old;
  const StateDict state = finished(run);
  for (const auto& [name, tensor] : state.tensors()) old.set(name, tensor);
  for (const auto& [name, value] : state.attributes().items())
    if (!name.starts_with("progress/settings") && !name.starts_with("progress/data"))
      old.set_attribute(name, value);
  run.options.optimizer.learning_rate = 1e-4;
  EXPECT_EQ(error_text(run, old), "");
}

std::uint32_t mark(float pixel, std::int64_t label, Shape shape = {3, 2}) {
  const Tensor x = Tensor::full(shape, pixel);
  return TensorDataset(x, Tensor::full({shape[0]}, label, DType::i64)).fingerprint();
}

TEST(Fingerprint, DistinguishesPixelsLabelsShapesAndRows) {
  EXPECT_EQ(mark(1, 1), mark(1, 1));
  EXPECT_NE(mark(1, 1), mark(2, 1));
  EXPECT_NE(mark(1, 1), mark(1, 2));
  EXPECT_NE(mark(0, 1, {4, 6}), mark(0, 1, {4, 2, 3}));
  const auto data = test::quadrants(9, 1);
  EXPECT_NE(Subset(data, {0, 1}).fingerprint(), Subset(data, {0, 2}).fingerprint());
  EXPECT_EQ(Subset(data, {0, 1}).labels().to_vector<std::int64_t>().size(), 2u);
}

/// Rows of a megabyte, made when they are read.
class Large : public Dataset {
 public:
  explicit Large(std::int64_t odd) : odd_(odd) {}
  [[nodiscard]] std::int64_t size() const noexcept override { return 10000; }
  [[nodiscard]] const Shape& sample_shape() const noexcept override { return shape_; }
  [[nodiscard]] std::int64_t classes() const noexcept override { return 2; }
  [[nodiscard]] Batch read(std::span<const std::int64_t> rows) const override {
    reads += static_cast<std::int64_t>(rows.size());
    Tensor x = Tensor::zeros({static_cast<std::int64_t>(rows.size()), shape_[0]});
    for (std::size_t i = 0; i < rows.size(); ++i)
      if (rows[i] == odd_) x.mutable_data<float>()[static_cast<std::int64_t>(i) * shape_[0]] = 1;
    return {x, {}};
  }
  mutable std::int64_t reads = 0;

 private:
  std::int64_t odd_;
  Shape shape_{1 << 18};
};

TEST(Fingerprint, SamplesRowsOfLargeData) {
  const Large none(-1), first(0), last(9999);
  EXPECT_NE(none.fingerprint(), first.fingerprint());
  EXPECT_NE(none.fingerprint(), last.fingerprint());
  EXPECT_EQ(none.reads, 128);
}

}  // namespace
}  // namespace fq::resume_checks_test
