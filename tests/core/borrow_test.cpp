#include <vector>

#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/core/tensor.h"

namespace fq::borrow_test {

TEST(TensorBorrow, ReadsAndWritesExternalMemory) {
  std::vector<float> memory{1, 2, 3, 4};
  Tensor x = Tensor::borrow(memory.data(), {2, 2}, DType::f32);
  EXPECT_EQ(x.data<float>(), memory.data());
  x.mutable_data<float>()[3] = 7;
  EXPECT_EQ(memory[3], 7);
  EXPECT_EQ(x.slice(1, 2).to_vector<float>(), (std::vector<float>{3, 7}));
}

TEST(TensorBorrow, ReleasesOnceWithTheLastHandle) {
  int released = 0;
  float memory[2] = {1, 2};
  Tensor view;
  {
    const Tensor x = Tensor::borrow(memory, {2}, DType::f32, [&] { ++released; });
    view = x.slice(1, 2);
    EXPECT_EQ(view.clone().item(), 2);
  }
  EXPECT_EQ(released, 0);
  EXPECT_EQ(view.item(), 2);
  view = {};
  EXPECT_EQ(released, 1);
}

TEST(TensorBorrow, AcceptsNullMemoryForEmptyTensorsOnly) {
  EXPECT_EQ(Tensor::borrow(nullptr, {0, 3}, DType::f32).numel(), 0);
  EXPECT_THROW(static_cast<void>(Tensor::borrow(nullptr, {1}, DType::f32)), ArgumentError);
  float memory[2] = {};
  EXPECT_THROW(static_cast<void>(Tensor::borrow(memory, {2}, DType::f32, {}, {}, Layout::channels_last)),
               ArgumentError);
}

}  // namespace fq::borrow_test
