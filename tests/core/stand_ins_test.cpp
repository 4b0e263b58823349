#include <thread>

#include <gtest/gtest.h>

#include "fakequant/core/detail/leaf_scopes.h"
#include "fakequant/core/error.h"
#include "fakequant/core/ops/elementwise.h"

namespace fq::stand_ins_test {
namespace {

TEST(StandIns, ReplaceTheLeafAndCollectTheirOwnGradient) {
  Variable leaf(Tensor::scalar(2.0), true);
  const auto node = leaf.node();
  const auto version = leaf.tensor().version();
  {
    detail::StandIns stand_ins;
    stand_ins.set(leaf, Tensor::scalar(3.0));
    const Variable copy = leaf;
    EXPECT_EQ(copy.item(), 3.0);
    EXPECT_EQ(copy.node(), leaf.node());
    EXPECT_NE(copy.node(), node);
    ops::multiply(copy, copy).backward();
    EXPECT_EQ(leaf.grad().item(), 6.0);
    leaf.set_tensor(Tensor::scalar(5.0));
    EXPECT_EQ(copy.item(), 5.0);
  }
  EXPECT_EQ(leaf.node(), node);
  EXPECT_EQ(leaf.item(), 2.0);
  EXPECT_FALSE(leaf.grad().defined());
  EXPECT_EQ(leaf.tensor().version(), version);
}

TEST(StandIns, Nest) {
  const Variable a(Tensor::scalar(1.0)), b(Tensor::scalar(2.0));
  detail::StandIns outer;
  outer.set(a, Tensor::scalar(10.0));
  {
    detail::StandIns inner;
    EXPECT_EQ(a.item(), 10.0);
    inner.set(a, Tensor::scalar(100.0));
    inner.set(b, Tensor::scalar(200.0));
    EXPECT_EQ(a.item(), 100.0);
    EXPECT_EQ(b.item(), 200.0);
  }
  EXPECT_EQ(a.item(), 10.0);
  EXPECT_EQ(b.item(), 2.0);
}

TEST(StandIns, RequireALeafOfTheSameShape) {
  const Variable leaf(Tensor::scalar(1.0), true);
  detail::StandIns stand_ins;
  EXPECT_THROW(stand_ins.set(leaf, Tensor::zeros({2})), ArgumentError);
  EXPECT_THROW(stand_ins.set(ops::multiply(leaf, leaf), Tensor::scalar(1.0)), ArgumentError);
  EXPECT_FALSE(Variable().defined());
  EXPECT_FALSE(Variable().requires_grad());
}

TEST(ThreadsStandIns, ArePerThread) {
  const Variable leaf(Tensor::scalar(2.0));
  detail::StandIns stand_ins;
  stand_ins.set(leaf, Tensor::scalar(3.0));
  double elsewhere = 0;
  std::thread([&] { elsewhere = leaf.item(); }).join();
  EXPECT_EQ(elsewhere, 2.0);
  EXPECT_EQ(leaf.item(), 3.0);
}

}  // namespace
}  // namespace fq::stand_ins_test
