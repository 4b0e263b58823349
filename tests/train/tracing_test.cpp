// Tracing reads a model: nothing of it is written, and other threads evaluate it meanwhile.

#include <atomic>
#include <thread>

#include <gmock/gmock.h>

#include "fakequant/core/detail/threads.h"
#include "fakequant/core/error.h"
#include "fakequant/layers/model/trace.h"
#include "fakequant/train/memory_plan.h"
#include "train/networks.h"

namespace fq::tracing_test {
namespace {

using test::Kind;
using ::testing::IsEmpty;

const Shape kSample{1, 8, 8}, kInput{4, 1, 8, 8};

std::shared_ptr<Graph> cnn(Kind kind) { return test::built("cnn", R"({"widths": [4, 8]})", kSample, kind); }

/// With ranges that are learned for weights, and that follow the batches for activations, which are watched.
std::shared_ptr<Graph> moving_ranges() {
  auto model = cnn(Kind::live_bn);
  visit_quantizers(*model, [](const NamedQuantizer& q) {
    if (!q.quantizer->enabled()) return;
    if (q.name.ends_with("weight_quantizer")) {
      auto options = q.quantizer->descriptor().options();
      options.learn_amax = true;
      const Tensor amax = q.quantizer->amax();
      q.quantizer->set_descriptor(QuantDescriptor(options));
      q.quantizer->set_amax(amax);
    } else {
      q.quantizer->update([](QuantParams& params) { params.running = params.observing = true; });
      q.quantizer->observer().collect(test::images(kSample, 2));
    }
  });
  return model;
}

/// One tensor of a model: which storage, written how often, and its bits.
struct Content {
  std::string name;
  const void* storage = nullptr;
  std::uint64_t version = 0;
  std::vector<float> values;
  bool operator==(const Content&) const = default;
};

Content content(std::string name, const Tensor& tensor) {
  if (!tensor.defined()) return {std::move(name), nullptr, 0, {}};
  return {std::move(name), tensor.raw(), tensor.version(), tensor.to_vector<float>()};
}

struct State {
  std::vector<Content> tensors;
  std::vector<bool> modes;
  std::vector<std::optional<float>> minima;  // that observers have seen
};

State snapshot(Module& model) {
  State out;
  for (const auto& [name, value] : model.named_parameters()) {
    out.tensors.push_back(content(name, value.tensor()));
    out.tensors.push_back(content(name + ".grad", value.grad()));
  }
  for (const auto& [name, value] : model.named_buffers()) out.tensors.push_back(content(name, value));
  for (const auto& q : named_quantizers(model)) {
    out.tensors.push_back(content(q.name + ".amax", q.quantizer->amax()));
    out.minima.push_back(q.quantizer->observer().minimum());
  }
  for (const auto& [path, module] : model.named_modules()) out.modes.push_back(module->training());
  return out;
}

/// Returns the names of changed entries.
std::vector<std::string> changes(const State& before, const State& after) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < before.tensors.size(); ++i)
    if (!(before.tensors[i] == after.tensors.at(i))) out.push_back(before.tensors[i].name);
  if (before.modes != after.modes) out.emplace_back("modes");
  if (before.minima != after.minima) out.emplace_back("observers");
  return out;
}

void trace_all(Module& model) {
  (void)trace(model, kInput);
  (void)summary(model, kInput);
  (void)plan_memory(model, kInput);
}

TEST(Tracing, DoesNotWriteToTheModel) {
  for (const auto& model : {cnn(Kind::float_), cnn(Kind::live_bn), cnn(Kind::folded), moving_ranges()}) {
    const Variable output = (*model)(Variable(test::images(kSample, 4)));
    ops::cross_entropy(output, test::labels(4)).backward();
    model->at("relu1").eval();
    const State before = snapshot(*model);
    trace_all(*model);
    EXPECT_THAT(changes(before, snapshot(*model)), IsEmpty());
    EXPECT_THROW((void)trace(*model, {4, 3, 8, 8}), ArgumentError);
    EXPECT_THROW((void)plan_memory(*model, {4, 3, 8, 8}), ArgumentError);
    EXPECT_THAT(changes(before, snapshot(*model)), IsEmpty());
  }
}

TEST(Tracing, UsesEvaluationAndPlansUseTraining) {
  const auto model = cnn(Kind::float_);
  const auto mode = [&](bool training) {
    model->train(training);
    for (const auto& node : trace(*model, kInput).nodes)
      if (node.op == "batch_norm") return node.attribute<bool>("training");
    return true;
  };
  EXPECT_FALSE(mode(true));
  EXPECT_FALSE(mode(false));
  model->train();
  const auto training = plan_memory(*model, kInput).saved_activations;
  model->eval();
  EXPECT_EQ(plan_memory(*model, kInput).saved_activations, training);
}

std::vector<float> evaluated(Module& model, const Tensor& x) {
  detail::set_threads(1);
  const NoGrad no_grad;
  return model(Variable(x)).tensor().to_vector<float>();
}

/// How many of the evaluations that others make during `traces` traces gave other bits.
int differing_evaluations(Module& model, const Tensor& x, const std::vector<float>& expected, int traces) {
  std::atomic<bool> done = false;
  std::atomic<int> differing = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&] {
      do {
        try {
          differing += evaluated(model, x) == expected ? 0 : 1;
        } catch (const Error&) {
          ++differing;
        }
      } while (!done);
    });
  for (int i = 0; i < traces; ++i) trace_all(model);
  done = true;
  for (auto& thread : threads) thread.join();
  return differing;
}

TEST(ThreadsTracing, AllowsConcurrentEvaluation) {
  const auto learned = moving_ranges();
  for (auto& q : named_quantizers(*learned)) q.quantizer->set_observing(false);
  for (const auto& model : {cnn(Kind::float_), cnn(Kind::live_bn), cnn(Kind::folded), learned}) {
    model->eval();
    const Tensor x = test::images(kSample, 4);
    const auto expected = evaluated(*model, x);
    const State before = snapshot(*model);
    EXPECT_EQ(differing_evaluations(*model, x, expected, 30), 0);
    EXPECT_THAT(changes(before, snapshot(*model)), IsEmpty());
  }
}

}  // namespace
}  // namespace fq::tracing_test
