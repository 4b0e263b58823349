#include <cmath>
#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include "cuda_device.h"
#include "fakequant/reference/modelopt.h"
#include "fakequant/reference/onnx.h"
#include "fakequant/reference/tensorrt.h"
#include "fakequant/reference/torch_ref.h"
#include "fakequant/reference/torchao.h"
#include "same_numbers.h"

// Functions that go through the host: the same results, where their input is. All of them, with the
// references' answers, are in tests/golden.

namespace fq::cuda_reference_test {
namespace {

class CudaReference : public testing::Test {
 protected:
  void SetUp() override { FQ_NEEDS_CUDA(); }
};

Tensor numbers(const Shape& shape) {
  Tensor out = Tensor::empty(shape);
  auto* v = out.mutable_data<float>();
  for (std::int64_t i = 0; i < out.numel(); ++i) v[i] = 3 * std::sin(static_cast<float>(i) * 0.71f);
  return out;
}

void expect_on_gpu(const Tensor& got, const Tensor& expected) {
  EXPECT_EQ(got.device(), Device::cuda());
  EXPECT_TRUE(same_numbers(got, expected));
}

TEST_F(CudaReference, MatchesTheCpuForCodesAndValues) {
  const Tensor x = numbers({4, 16}), gpu = x.to(Device::cuda()),
               scale = Tensor::from({0.1f, 0.2f, 0.3f, 0.4f});
  const Tensor codes = onnx::quantize_linear(x, scale, {}, 0);
  expect_on_gpu(onnx::quantize_linear(gpu, scale.to(Device::cuda()), {}, 0), codes);
  expect_on_gpu(onnx::quantize_linear(gpu, scale, {3, 2, 1, 0}, 0),
                onnx::quantize_linear(x, scale, {3, 2, 1, 0}, 0));
  expect_on_gpu(onnx::dequantize_linear(codes.to(Device::cuda()), scale, {}, 0),
                onnx::dequantize_linear(codes, scale, {}, 0));
  expect_on_gpu(tripy::quantize(gpu, 0.5, DType::f8_e4m3), tripy::quantize(x, 0.5, DType::f8_e4m3));
  const Tensor packed = tensorrt::quantize(x, 0.4, DType::i4);
  const Tensor own = tensorrt::quantize(gpu, 0.4, DType::i4);
  EXPECT_TRUE(bitwise_equal(own, packed));
  expect_on_gpu(tensorrt::dequantize(own, 0.4), tensorrt::dequantize(packed, 0.4));
}

TEST_F(CudaReference, MatchesTheCpuForGradients) {
  const auto learned = [](Device device) {
    const Variable x(numbers({3, 8}).to(device), true),
        scale(Tensor::from({0.1f, 0.2f, 0.3f}).to(device), true);
    const Tensor zeros = Tensor::zeros({3}, DType::i32, device);
    const Variable y = torchao::fake_quantize_affine(x, {1, 8}, scale, zeros, {.bits = 4});
    y.backward(Tensor::full({3, 8}, 0.5, DType::f32, device));
    return std::vector<Tensor>{y.tensor(), x.grad(), scale.grad()};
  };
  const auto expected = learned(Device::cpu()), got = learned(Device::cuda());
  for (std::size_t i = 0; i < got.size(); ++i) expect_on_gpu(got[i], expected[i]);
  const auto fixed = [](Device device) {
    const Variable x(numbers({3, 8}).to(device), true);
    torch_ref::fake_quantize_per_tensor_affine(x, 0.1, 0, -8, 7)
        .backward(Tensor::full({3, 8}, 2, DType::f32, device));
    return x.grad();
  };
  expect_on_gpu(fixed(Device::cuda()), fixed(Device::cpu()));
}

TEST_F(CudaReference, ReturnsSeveralTensors) {
  const Tensor x = numbers({2, 64}), gpu = x.to(Device::cuda());
  const auto params =
      torchao::choose_qparams_affine(x, torchao::MappingType::asymmetric, {1, 32}, {.bits = 8});
  const auto own =
      torchao::choose_qparams_affine(gpu, torchao::MappingType::asymmetric, {1, 32}, {.bits = 8});
  expect_on_gpu(own.scale, params.scale);
  expect_on_gpu(own.zero_point, params.zero_point);
  const auto mx = torchao::to_mx(x, {2, 1}), mx_there = torchao::to_mx(gpu, {2, 1});
  EXPECT_TRUE(bitwise_equal(mx_there.codes, mx.codes));
  expect_on_gpu(torchao::to_dtype(mx_there, {2, 1}), torchao::to_dtype(mx, {2, 1}));
  const auto packed = modelopt::nf4_qtensor(x, 16, 4), packed_there = modelopt::nf4_qtensor(gpu, 16, 4);
  EXPECT_EQ(packed_there.scale_codes.device(), Device::cuda());
  expect_on_gpu(packed_there.dequantize(), packed.dequantize());
}

}  // namespace
}  // namespace fq::cuda_reference_test
