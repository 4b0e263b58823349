#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/train/loop/average.h"
#include "train/loop_run.h"

namespace fq::reestimate_test {
namespace {

TEST(Reestimate, StatisticsAreMeansOverBatches) {
  auto model = std::make_shared<Sequential>();
  const auto norm = std::make_shared<BatchNorm>(1);
  model->add("bn", norm);
  const Tensor x = Tensor::from(std::vector<float>{1, 3, 10, 20, 5, 5}, {6, 1});
  DataLoader data(std::make_shared<TensorDataset>(x), {.batch_size = 2, .shuffle = false});
  EXPECT_EQ(reestimate_batch_norm(*model, data, 2), 1);
  EXPECT_FLOAT_EQ(norm->running_mean().to_vector<float>()[0], 8.5F);  // of 2 and 15
  EXPECT_FLOAT_EQ(norm->running_var().to_vector<float>()[0], 26);     // of 2 and 50
  EXPECT_EQ(norm->momentum(), 0.1);
  EXPECT_TRUE(model->training() && norm->training());
  EXPECT_THROW((void)reestimate_batch_norm(*model, data, 4), ArgumentError);
  norm->freeze();
  EXPECT_EQ(live_batch_norms(*model), 0);
}

TEST(Reestimate, RejectsUnsupportedRuns) {
  test::Plan run;
  run.options.batch_norm.reestimate_bn = 2;
  run.options.batch_norm.freeze_bn_after = 3;
  EXPECT_THROW((void)run.make(), ArgumentError);
  run.options.batch_norm.freeze_bn_after = -1;
  run.options.batch_norm.reestimate_bn = 7;  // an epoch has 6
  EXPECT_THROW((void)run.make(), ArgumentError);
}

}  // namespace
}  // namespace fq::reestimate_test
