#include <gtest/gtest.h>

#include "cuda_device.h"
#include "fakequant/core/numerics/number_formats.h"
#include "same_numbers.h"
#include "vector_patterns.h"

namespace fq::cuda_half_test {
namespace {

class CudaHalf : public testing::Test {
 protected:
  void SetUp() override { FQ_NEEDS_CUDA(); }
};

TEST_F(CudaHalf, ConvertsEveryHalfAndManyFloats) {
  const auto floats = patterns();
  const Tensor x = Tensor::from(floats, {static_cast<std::int64_t>(floats.size())});
  for (const DType dtype : {DType::f16, DType::bf16}) {
    EXPECT_TRUE(same_numbers(x.to(Device::cuda()).to(dtype), x.to(dtype))) << name(dtype);
    Tensor every = Tensor::empty({1 << 16}, dtype);
    auto* bits = static_cast<std::uint16_t*>(every.mutable_raw());
    for (int i = 0; i < 1 << 16; ++i) bits[i] = static_cast<std::uint16_t>(i);
    EXPECT_TRUE(same_numbers(every.to(Device::cuda()).to(DType::f32), every.to(DType::f32))) << name(dtype);
  }
}

}  // namespace
}  // namespace fq::cuda_half_test
