#include <cmath>

#include "fakequant/core/detail/threads.h"
#include "fakequant/core/error.h"
#include "train/loop_run.h"

namespace fq::loop_evaluate_test {
namespace {

TEST(Evaluate, CountsTheFirstMaximum) {
  const Tensor logits = Tensor::from({1.0f, 2.0f, 0.0f, 3.0f, 3.0f, 0.0f, NAN, 0.0f, 1.0f}, {3, 3});
  EXPECT_EQ(count_correct(logits, Tensor::from({std::int64_t{1}, std::int64_t{0}, std::int64_t{2}})), 2);
  EXPECT_EQ(count_correct(logits, Tensor::from({std::int64_t{1}, std::int64_t{1}, std::int64_t{0}})), 1);
}

TEST(Evaluate, IsInvariantToThreadCount) {
  const auto model = test::small_network(true);
  visit_quantizers(*model, [](const NamedQuantizer& q) { q.quantizer->set_amax(Tensor::scalar(2)); });
  DataLoader loader(test::quadrants(40, 2), test::sequential_options());
  model->train();
  std::vector<Evaluation> results;
  std::vector<Tensor> outputs;
  for (const int threads : {1, 2, 4}) {
    detail::set_threads(threads);
    results.push_back(evaluate(*model, loader));
    outputs.push_back(predict(*model, loader));
  }
  detail::set_threads(1);
  EXPECT_TRUE(model->training());
  for (std::size_t i = 1; i < 3; ++i) {
    EXPECT_EQ(results[i].loss, results[0].loss);
    EXPECT_EQ(results[i].correct, results[0].correct);
    EXPECT_TRUE(bitwise_equal(outputs[i], outputs[0]));
  }
  EXPECT_EQ(outputs[0].shape(), (Shape{40, 4}));
  EXPECT_EQ(results[0].count, 40);
}

TEST(Evaluate, RestoresTheModeOfEachModule) {
  DataLoader loader(test::quadrants(16, 2), test::sequential_options());
  const auto model = test::small_network(false);
  model->train();
  model->at("bn").eval();
  (void)evaluate(*model, loader);
  EXPECT_TRUE(model->training());
  EXPECT_TRUE(model->at("drop").training());
  EXPECT_FALSE(model->at("bn").training());
}

TEST(Evaluate, RequiresLabels) {
  DataLoader loader(std::make_shared<TensorDataset>(Tensor::zeros({4, 1, 8, 8})),
                    {.batch_size = 2, .shuffle = false});
  const auto model = test::small_network(false);
  EXPECT_THROW((void)evaluate(*model, loader), ArgumentError);
  EXPECT_EQ(predict(*model, loader).shape(), (Shape{4, 4}));
}

}  // namespace
}  // namespace fq::loop_evaluate_test
