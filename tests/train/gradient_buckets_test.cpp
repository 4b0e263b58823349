// Sums over ranks that begin during the backward pass equal, bit for bit, the sums at the end of a single
// process's pass.

#include <thread>

#include <gtest/gtest.h>

#include "fakequant/core/detail/leaf_scopes.h"
#include "fakequant/core/detail/threads.h"
#include "fakequant/core/profile.h"
#include "fakequant/layers/modules/activation.h"
#include "fakequant/layers/modules/checkpoint.h"
#include "fakequant/layers/modules/linear.h"
#include "fakequant/layers/modules/sequential.h"
#include "fakequant/train/ranks/detail/shared_step.h"
#include "train/networks.h"
#include "train/thread_rank.h"

namespace fq::gradient_buckets_test {
namespace {

using test::Meeting, test::ThreadRank;

constexpr int kWidth = 380;  // a layer is a bucket

std::shared_ptr<Sequential> network() {
  const RandomScope seed(3, 0);
  auto out = std::make_shared<Sequential>();
  out->add("first", std::make_shared<Linear>(kWidth, kWidth))
      .add("relu", make_relu())
      .add("second", std::make_shared<Linear>(kWidth, kWidth))
      .add("third", std::make_shared<Linear>(kWidth, kWidth))
      .add("head", std::make_shared<Linear>(kWidth, 10));
  return out;
}

using Forward = std::function<Variable(Sequential&, const Variable&, std::int64_t step)>;

Variable plain(Sequential& model, const Variable& x, std::int64_t) { return model(x); }

struct Ran {
  std::vector<Tensor> gradients;  // of all steps
  std::string trace;
};

/// Steps of `batches` batches of 8 images each.
Ran run(const std::shared_ptr<Communicator>& ranks, const std::vector<std::int64_t>& batches,
        const Forward& forward) {
  detail::set_threads(1);
  const auto model = network();
  detail::SharedStep shared(ranks, *model, false);
  Profiler profiler;
  const ProfilerScope profiled(profiler);
  Ran out;
  std::int64_t seed = 1;
  for (std::int64_t step = 0; step < std::ssize(batches); ++step) {
    ProfileStep work;
    for (std::int64_t batch = 0; batch < batches[std::size_t(step)]; ++batch, ++seed) {
      if (batch % ranks->size() != ranks->rank()) {
        shared.skip_batch();
        continue;
      }
      shared.begin_batch(batches[std::size_t(step)]);
      const detail::LeafScope leaves([&](const detail::Gradient& leaf) { shared.ready(leaf); });
      const Variable x(test::images({kWidth}, 8, std::uint64_t(seed)));
      ops::cross_entropy(forward(*model, x, step), test::labels(8)).backward();
      shared.end_batch({.loss = 1, .correct = 0, .samples = 8});
    }
    bool stop = false;
    EXPECT_EQ(shared.finish(stop).size(), std::size_t(batches[std::size_t(step)]));
    for (auto& parameter : model->parameters()) {
      out.gradients.push_back(parameter.grad());
      parameter.zero_grad();
    }
  }
  out.trace = profiler.trace();
  return out;
}

std::vector<Ran> train_ranks(int size, const std::vector<std::int64_t>& batches, const Forward& forward) {
  Meeting meeting(size);
  std::vector<Ran> out(static_cast<std::size_t>(size));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      out[std::size_t(rank)] = run(std::make_shared<ThreadRank>(meeting, rank), batches, forward);
    });
  threads.clear();
  return out;
}

void expect_bits_of_one(const std::vector<std::int64_t>& batches, const Forward& forward, bool early) {
  const Ran one = run(one_rank(), batches, forward);
  for (const int size : {2, 3})
    for (const Ran& ran : train_ranks(size, batches, forward)) {
      ASSERT_EQ(ran.gradients.size(), one.gradients.size());
      for (std::size_t i = 0; i < one.gradients.size(); ++i) {
        ASSERT_EQ(ran.gradients[i].defined(), one.gradients[i].defined()) << size << ' ' << i;
        if (one.gradients[i].defined()) {
          EXPECT_TRUE(bitwise_equal(ran.gradients[i], one.gradients[i])) << size << ' ' << i;
        }
      }
      EXPECT_EQ(ran.trace.find("sums over ranks") != std::string::npos, early) << size;
    }
}

TEST(GradientBuckets, StartEarlyAndMatchOneProcessBitwise) { expect_bits_of_one({4, 3, 5}, plain, true); }

TEST(GradientBuckets, RanksWithoutABatchJoinAtTheEnd) {
  const std::vector<std::int64_t> batches{3, 1};
  const Ran one = run(one_rank(), batches, plain);
  for (const Ran& ran : train_ranks(3, batches, plain))
    for (std::size_t i = 0; i < one.gradients.size(); ++i)
      EXPECT_TRUE(bitwise_equal(ran.gradients[i], one.gradients[i])) << i;
}

/// The first steps skip the second layer: its gradients appear after the sum of its bucket has begun without
/// them.
TEST(GradientBuckets, AreReducedAgainForNewGradients) {
  const auto forward = [](Sequential& model, const Variable& x, std::int64_t step) {
    const Variable first = model.at("relu")(model.at("first")(x));
    const Variable second = step == 0 ? first : model.at("second")(first);
    return model.at("head")(model.at("third")(second));
  };
  expect_bits_of_one({3, 3, 3}, forward, true);
}

/// Gradients of a checkpointed block are computed in an inner pass without notifications.
TEST(GradientBuckets, WaitForCheckpointedBlocks) {
  const auto forward = [](Sequential& model, const Variable& x, std::int64_t) {
    const auto block = [&model](const std::vector<Variable>& in) {
      return model.at("head")(model.at("third")(in[0]));
    };
    const Variable first = model.at("relu")(model.at("first")(x));
    const Variable second = model.at("second")(first);
    auto parameters = model.at("third").parameters();
    std::ranges::copy(model.at("head").parameters(), std::back_inserter(parameters));
    return checkpoint(block, {second}, parameters);
  };
  expect_bits_of_one({3, 3}, forward, false);
}

/// A layer that is read inside of a block and outside of it has its gradient in two parts.
TEST(GradientBuckets, IncludeAllPartsOfAGradient) {
  const auto forward = [](Sequential& model, const Variable& x, std::int64_t) {
    auto& third = model.at("third");
    const auto block = [&third](const std::vector<Variable>& in) { return third(in[0]); };
    const Variable first = model.at("relu")(model.at("first")(x));
    const Variable twice = third(checkpoint(block, {first}, third.parameters()));
    return model.at("head")(model.at("second")(twice));
  };
  expect_bits_of_one({3, 3, 3}, forward, true);
}

}  // namespace
}  // namespace fq::gradient_buckets_test
