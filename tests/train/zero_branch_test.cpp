// Branches that start at zero are trained, in every format with frozen, running and learned ranges.

#include <algorithm>
#include <atomic>
#include <numeric>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fakequant/core/detail/threads.h"
#include "fakequant/core/error.h"
#include "fakequant/core/log.h"
#include "fakequant/layers/model/graph.h"
#include "fakequant/train/calibration/calibrate.h"
#include "fakequant/train/calibration/calibration_report.h"
#include "fakequant/train/loop/checkpoint.h"
#include "fakequant/train/ranks/shares.h"
#include "layers/networks.h"
#include "train/loop_run.h"
#include "train/thread_rank.h"

namespace fq::zero_branch_test {
namespace {

/// The part of the branch that is zero at calibration.
enum class Zero { weights, activations, channel };

std::shared_ptr<const Dataset> images() {
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < 32; ++i) labels.push_back(i * 7 % 10);
  return std::make_shared<TensorDataset>(test::random_tensor({32, 1, 8, 8}, -1, 1),
                                         Tensor::from(labels, {32}));
}

std::shared_ptr<DataLoader> batches() {
  return std::make_shared<DataLoader>(images(),
                                      LoaderOptions{.batch_size = 8, .shuffle = false, .prefetch = 0});
}

Variable parameter(Module& model, const std::string& name) {
  for (const auto& [path, value] : model.named_parameters())
    if (path == name) return value;
  throw ArgumentError("no parameter " + name);
}

void set_zero(Module& model, Zero what) {
  Variable values = parameter(model, what == Zero::activations ? "bn2.weight" : "conv2.weight");
  auto* data = values.mutable_tensor().mutable_data<float>();
  std::fill(data, data + (what == Zero::channel ? values.numel() / 8 : values.numel()), 0.0f);
}

Tensor all_images() {
  std::vector<std::int64_t> all(32);
  std::iota(all.begin(), all.end(), 0);
  return images()->read(all).x;
}

/// Running statistics of the data: by others, training would clip the activations of the whole network.
void find_statistics(Module& model) {
  const NoGrad no_grad;
  const auto set_momentum = [&](double momentum) {
    for (auto& [path, module] : model.named_modules())
      if (auto* norm = dynamic_cast<BatchNorm*>(module)) norm->set_momentum(momentum);
  };
  set_momentum(0.9);
  for (int i = 0; i < 3; ++i) (void)model(Variable(all_images()));
  set_momentum(0.1);
}

/// Null for a preset whose blocks do not fit the small network.
std::shared_ptr<Graph> calibrated(const std::string& preset, Zero what) {
  const RandomScope seed(2, 0);
  auto model = test::residual_net();
  set_zero(*model, what);
  find_statistics(*model);
  (void)quantize(*model, QuantConfig::preset(preset), {1, 1, 8, 8});
  const auto quantizers = named_quantizers(*model);
  if (std::ranges::none_of(quantizers, [](const auto& each) { return each.quantizer->enabled(); })) return {};
  (void)calibrate(*model, *batches());
  return model;
}

std::vector<std::string> zero_quantizers(Module& model) {
  std::vector<std::string> out;
  for (const auto& entry : named_quantizers(model))
    if (entry.quantizer->params().enabled && entry.quantizer->range().is_zero()) out.push_back(entry.name);
  return out;
}

Tensor outputs(Module& model) {
  model.eval();
  const NoGrad no_grad;
  return model(Variable(all_images())).tensor().clone();
}

/// Lets floats pass after the sum, because the steps of few bits would hide a small branch.
Tensor outputs_of_sum(Module& model) {
  for (auto& entry : named_quantizers(model))
    if (entry.name.starts_with("gap.") || entry.name.starts_with("fc."))
      entry.quantizer->set_quantizing(false);
  return outputs(model);
}

float largest(const Tensor& x) {
  float out = 0;
  for (const float v : x.to(DType::f32).to_vector<float>()) out = std::max(out, std::abs(v));
  return out;
}

/// Checks that each quantizer keeps a sixteenth of the largest value it sees: a learned range of 2 bits has a
/// quarter of the largest value in training, and running statistics enlarge the values by a factor below 4.
void expect_unclipped(Module& model, const std::string& run) {
  const auto weights = weight_quantizers(model);
  const auto quantizers = named_quantizers(model);
  for (const auto& [name, q, aliases] : quantizers) {
    if (weights.contains(q) || !q->params().enabled) continue;
    q->set_observing(true);
    q->observer().set_watcher([&run, q = q](const Variable& x) {
      EXPECT_GE(largest(q->quantized_values(x.tensor())), largest(x.tensor()) / 16)
          << run << ": '" << q->name() << "' clips what it sees";
    });
  }
  (void)outputs(model);
  for (const auto& each : quantizers) {
    each.quantizer->set_observing(false);
    each.quantizer->observer().set_watcher({});
  }
}

bool has_range(Module& model, bool of_weights) {
  const auto weights = weight_quantizers(model);
  return std::ranges::any_of(named_quantizers(model), [&](const NamedQuantizer& entry) {
    const auto& q = *entry.quantizer;
    return weights.contains(&q) == of_weights && q.params().enabled && q.descriptor().needs_amax() &&
           q.descriptor().block_sizes().empty();
  });
}

TrainerOptions run(AmaxMode amax) {
  return {.epochs = 3,
          .seed = 1,
          .optimizer = {.kind = "sgd", .learning_rate = 0.1},
          .schedule = {.kind = "constant"},
          .ranges = {.amax = amax, .amax_gradient = AmaxGradient::lsq}};
}

void expect_trained(const std::string& preset, Zero what, AmaxMode amax) {
  const std::string name = fmt::format("{}, {}, {}", preset, int(what), int(amax));
  auto model = calibrated(preset, what);
  if (model == nullptr || (amax == AmaxMode::learned && !has_range(*model, false))) return;
  TrainerOptions options = run(amax);
  options.ranges.learn_weight_ranges = amax == AmaxMode::learned && has_range(*model, true);
  const Tensor before = parameter(*model, "conv2.weight").tensor().clone();
  (void)Trainer(model, batches(), options).fit();
  EXPECT_TRUE(zero_quantizers(*model).empty()) << name << ": " << zero_quantizers(*model).size();
  expect_unclipped(*model, name);
  const Tensor trained = outputs_of_sum(*model);
  if (what == Zero::channel) {
    const auto now = parameter(*model, "conv2.weight").tensor().to_vector<float>();
    EXPECT_NE(now[0], 0.0f) << name;
  } else {
    EXPECT_FALSE(bitwise_equal(before, parameter(*model, "conv2.weight").tensor())) << name;
  }
  set_zero(*model, what);
  EXPECT_FALSE(bitwise_equal(trained, outputs_of_sum(*model))) << name << ": the branch contributes nothing";
}

TEST(ZeroBranch, IsTrainedInEveryFormat) {
  const QuietLog quiet;
  for (const auto& preset : QuantConfig::preset_names())
    for (const Zero what : {Zero::weights, Zero::activations, Zero::channel})
      for (const AmaxMode amax : {AmaxMode::frozen, AmaxMode::running, AmaxMode::learned})
        expect_trained(preset, what, amax);
}

/// A branch of zeros that adds a positive bias may be negative when it is trained.
TEST(ZeroBranch, PositiveBranchBiasKeepsItsSign) {
  const QuietLog quiet;
  const RandomScope seed(2, 0);
  for (const bool zero : {true, false}) {
    auto model = test::residual_net();
    if (zero) set_zero(*model, Zero::weights);
    parameter(*model, "bn2.bias").mutable_tensor().copy_from(Tensor::full({8}, 9));
    find_statistics(*model);
    (void)quantize(*model, QuantConfig::preset("int8"), {1, 1, 8, 8});
    (void)calibrate(*model, *batches());
    for (const auto& [name, q, aliases] : named_quantizers(*model)) {
      if (name == "add.input_quantizer") {
        EXPECT_EQ(q->descriptor().is_unsigned(), !zero);
      }
      const bool behind =
          name.starts_with("add.") || name.starts_with("gap.") || name == "fc.input_quantizer";
      EXPECT_EQ(q->range().grows(), zero && (behind || name == "conv2.weight_quantizer")) << name;
    }
  }
}

TEST(ZeroBranch, CalibrationNamesTheQuantizers) {
  std::vector<std::string> warnings;
  set_log_callback([&](LogLevel, std::string_view message) { warnings.emplace_back(message); });
  auto model = calibrated("int8", Zero::weights);
  set_log_callback({});
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("'conv2.weight_quantizer'"), std::string::npos) << warnings[0];
  const auto found = quantizer_findings(*model, images()->read(std::vector<std::int64_t>{0, 1}).x);
  for (const auto& each : found) EXPECT_EQ(each.kind, QuantizerFinding::Kind::zeros) << each.text();
}

TEST(ZeroBranch, ResumesBitwise) {
  const QuietLog quiet;
  const test::Folder folder;
  TrainerOptions options = run(AmaxMode::frozen);
  options.epochs = 2;
  auto whole = calibrated("int8", Zero::weights), half = calibrated("int8", Zero::weights),
       rest = calibrated("int8", Zero::weights);
  (void)Trainer(whole, batches(), options).fit();
  std::atomic<bool> stop = false;
  TrainerOptions first = options;
  first.checkpoint.out = folder.file("c.h5");
  first.execution.stop = &stop;
  TrainerCallbacks callbacks;
  callbacks.on_step = [&](const StepReport& report) { stop = report.step == 3; };
  EXPECT_TRUE(Trainer(half, batches(), first, nullptr, callbacks).fit().stopped);
  Trainer resumed(rest, batches(), options);
  resumed.resume(load_checkpoint(first.checkpoint.out), first.checkpoint.out);
  (void)resumed.fit();
  EXPECT_TRUE(bitwise_equal(outputs(*whole), outputs(*rest)));
}

/// Outputs and ranges after a run that `ranks` share.
std::vector<Tensor> train_ranks(const std::shared_ptr<Communicator>& ranks, Zero what, AmaxMode amax) {
  detail::set_threads(1);
  auto model = calibrated("w4a8", what);
  TrainerOptions options = run(amax);
  options.update.accumulation = 2;
  options.distributed.ranks = ranks;
  options.ranges.learn_weight_ranges = amax == AmaxMode::learned;
  const auto loader = share_of_rank({.batch_size = 8, .shuffle = false, .prefetch = 0}, *ranks, 2);
  (void)Trainer(model, std::make_shared<DataLoader>(images(), loader), options).fit();
  std::vector<Tensor> out{outputs(*model)};
  for (const auto& entry : named_quantizers(*model))
    if (entry.quantizer->amax().defined()) out.push_back(entry.quantizer->amax().clone());
  return out;
}

TEST(ZeroBranch, RanksMatchTheRangesOfOneProcess) {
  const QuietLog quiet;
  for (const Zero what : {Zero::weights, Zero::activations, Zero::channel})
    for (const AmaxMode amax : {AmaxMode::frozen, AmaxMode::running, AmaxMode::learned}) {
      const auto one = train_ranks(one_rank(), what, amax);
      test::Meeting meeting(2);
      std::vector<std::vector<Tensor>> found(2);
      {
        std::vector<std::jthread> threads;
        for (int rank = 0; rank < 2; ++rank)
          threads.emplace_back([&, rank] {
            found[std::size_t(rank)] =
                train_ranks(std::make_shared<test::ThreadRank>(meeting, rank), what, amax);
          });
      }
      for (const auto& values : found) {
        ASSERT_EQ(values.size(), one.size());
        for (std::size_t i = 0; i < one.size(); ++i)
          EXPECT_TRUE(bitwise_equal(values[i], one[i])) << int(what) << ", " << int(amax) << ", " << i;
      }
    }
}

}  // namespace
}  // namespace fq::zero_branch_test
