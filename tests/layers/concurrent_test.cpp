// One quantized model, evaluated by several threads at once.

#include <thread>

#include <gtest/gtest.h>

#include "fakequant/core/detail/threads.h"
#include "fakequant/layers/model/fold.h"
#include "layers/networks.h"

namespace fq::concurrent_test {
namespace {

using namespace test;

TEST(ThreadsEvaluation, ConcurrentReadersGetTheSameBits) {
  auto model = residual_net();
  fold_batch_norm(*model, {1, 1, 8, 8});
  quantize(*model, QuantConfig::preset("int8"), {1, 1, 8, 8});
  observe(*model, random_tensor({16, 1, 8, 8}, 0, 1));
  const Tensor x = random_tensor({8, 1, 8, 8}, 0, 1, 9);
  const auto run = [&] {
    detail::set_threads(1);
    const NoGrad no_grad;
    return (*model)(Variable(x)).tensor().to_vector<float>();
  };
  std::vector<std::vector<float>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results)
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) result = run();
    });
  for (auto& thread : threads) thread.join();
  const auto expected = run();
  for (const auto& result : results) EXPECT_EQ(result, expected);
}

}  // namespace
}  // namespace fq::concurrent_test
