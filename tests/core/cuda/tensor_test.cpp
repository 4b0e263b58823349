#include "fakequant/core/tensor.h"

#include <numeric>
#include <sstream>

#include <gtest/gtest.h>

#include "cuda_device.h"
#include "fakequant/core/device.h"
#include "fakequant/core/error.h"

namespace fq::cuda_tensor_test {
namespace {

class CudaTensor : public testing::Test {
 protected:
  void SetUp() override { FQ_NEEDS_CUDA(); }
};

constexpr DType kTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i8,
                            DType::u8,  DType::i16, DType::u16, DType::i32,  DType::i64};

Tensor numbers(const Shape& shape) {
  Tensor out = Tensor::empty(shape, DType::f64);
  auto* v = out.mutable_data<double>();
  for (std::int64_t i = 0; i < out.numel(); ++i) v[i] = static_cast<double>((i * 37) % 301) * 0.75 - 100.0;
  return out;
}

TEST_F(CudaTensor, RoundTripsBytes) {
  const Tensor x = numbers({3, 5, 7});
  const Tensor gpu = x.to(Device::cuda());
  EXPECT_EQ(gpu.device(), Device::cuda());
  EXPECT_TRUE(bitwise_equal(gpu.to(Device::cpu()), x));
  EXPECT_TRUE(bitwise_equal(gpu.clone(), x));
  EXPECT_EQ(gpu.to_vector<double>(), x.to_vector<double>());
  EXPECT_EQ(gpu.slice(1, 2).reshape({35}).to_vector<double>(),
            x.slice(1, 2).reshape({35}).to_vector<double>());
  EXPECT_EQ(Tensor::scalar(2.5).to(Device::cuda()).item(), 2.5);
  EXPECT_TRUE(gpu.to(Device::cuda()).storage().shares(gpu.storage()));
}

TEST_F(CudaTensor, FillsAndCopiesValues) {
  for (const DType dtype : kTypes) {
    EXPECT_TRUE(
        bitwise_equal(Tensor::full({1001}, 3, dtype, Device::cuda()), Tensor::full({1001}, 3, dtype)));
    EXPECT_TRUE(bitwise_equal(Tensor::zeros({1001}, dtype, Device::cuda()), Tensor::zeros({1001}, dtype)));
  }
  Tensor out = Tensor::empty({4, 6}, DType::f64, Device::cuda());
  out.copy_from(numbers({4, 6}));
  EXPECT_TRUE(bitwise_equal(out, numbers({4, 6})));
}

TEST_F(CudaTensor, ConvertsBetweenAllTypes) {
  for (const DType from : kTypes)
    for (const DType to : kTypes) {
      const Tensor x = numbers({9001}).to(from);
      EXPECT_TRUE(bitwise_equal(x.to(Device::cuda()).to(to), x.to(to))) << name(from) << " to " << name(to);
      const Tensor odd = numbers({3, 11}).to(from);  // rows that begin on no 16 bytes
      EXPECT_TRUE(bitwise_equal(odd.to(Device::cuda()).slice(1, 3).to(to), odd.slice(1, 3).to(to)));
    }
}

TEST_F(CudaTensor, PermutesLayoutsOfEveryWidth) {
  for (const Shape& shape : {Shape{2, 3, 5, 7}, Shape{3, 33, 8, 9}, Shape{1, 64, 1, 100}, Shape{0, 3, 2, 2}})
    for (const DType dtype : {DType::i8, DType::f16, DType::f32, DType::f64}) {
      const Tensor x = numbers(shape).to(dtype), gpu = x.to(Device::cuda());
      const Tensor last = gpu.to(Layout::channels_last);
      EXPECT_TRUE(bitwise_equal(last.to(Device::cpu()), x)) << to_string(shape) << name(dtype);
      EXPECT_TRUE(bitwise_equal(last.to(Layout::row_major), x)) << to_string(shape) << name(dtype);
    }
}

TEST_F(CudaTensor, PermutesMasks) {
  for (const Shape& shape : {Shape{2, 3, 5, 7}, Shape{3, 16, 4, 8}}) {
    Tensor bits = Tensor::zeros(shape, DType::u1);
    auto* bytes = static_cast<unsigned char*>(bits.mutable_raw());
    for (std::int64_t i = 0; i < bits.nbytes(); ++i) bytes[i] = static_cast<unsigned char>(i * 73 + 5);
    if (bits.numel() % 8 != 0)
      bytes[bits.nbytes() - 1] &= static_cast<unsigned char>((1 << bits.numel() % 8) - 1);
    const Tensor last = bits.to(Device::cuda()).to(Layout::channels_last);
    EXPECT_TRUE(bitwise_equal(last.to(Device::cpu()), bits));
    EXPECT_TRUE(bitwise_equal(last.to(Layout::row_major), bits));
  }
}

TEST_F(CudaTensor, RejectsHostAccessAndPrints) {
  const Tensor x = Tensor::full({2}, 1.5).to(Device::cuda());
  EXPECT_THROW((void)x.data<float>(), BackendError);
  std::ostringstream text;
  text << x;
  EXPECT_EQ(text.str(), "Tensor([1.5, 1.5], f32 [2] cuda:0)");
}

TEST_F(CudaTensor, CountsMemory) {
  const auto before = memory_stats(Device::cuda()).in_use;
  {
    const Tensor x = Tensor::empty({1000}, DType::f32, Device::cuda());
    EXPECT_EQ(memory_stats(Device::cuda()).in_use, before + 4000);
  }
  EXPECT_EQ(memory_stats(Device::cuda()).in_use, before);
  EXPECT_GE(memory_stats(Device::cuda()).peak, before + 4000);
}

TEST_F(CudaTensor, RejectsAMissingDevice) {
  EXPECT_THROW((void)Tensor::empty({1}, DType::f32, Device::cuda(63)), BackendError);
  EXPECT_THROW((void)Device::parse("cuda:x"), ArgumentError);
  EXPECT_EQ(Device::parse("auto"), Device::cuda());
}

}  // namespace
}  // namespace fq::cuda_tensor_test
