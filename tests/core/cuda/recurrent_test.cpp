#include "fakequant/core/ops/recurrent.h"

#include <gtest/gtest.h>

#include "cuda_device.h"
#include "fakequant/core/error.h"
#include "fakequant/core/quantized.h"

namespace fq::cuda_recurrent_test {
namespace {

class CudaRecurrent : public testing::Test {
 protected:
  void SetUp() override { FQ_NEEDS_CUDA(); }
};

Tensor numbers(const Shape& shape, int factor, double unit) {
  std::vector<float> out;
  for (std::int64_t i = 0; i < numel(shape); ++i)
    out.push_back(static_cast<float>((i * factor % 251 - 125) * unit));
  return Tensor::from(out, shape);
}

Variable weight(const Shape& shape, int factor, Device device) {
  const auto grid = Grid::from_amax(IntFormat{8, false, true}, Granularity::per_axis(0),
                                    Tensor::full({shape[0]}, 0.7), "w");
  return Variable(quantize(numbers(shape, factor, 1.0 / 160).to(device), grid.to(device), false));
}

Tensor run(ops::DynamicRange range, Device device) {
  constexpr std::int64_t batch = 4, steps = 5, in = 9, width = 6;
  return ops::lstm(numbers({batch, steps, in}, 37, 1.0 / 60).to(device),
                   {weight({4 * width, in}, 29, device),
                    weight({4 * width, width}, 53, device),
                    numbers({4 * width}, 7, 1.0 / 300).to(device),
                    {}},
                   numbers({batch, width}, 11, 1.0 / 150).to(device), {}, true, range)
      .tensor()
      .to(Device::cpu());
}

/// Sums are exact, and all else is rounded alike.
TEST_F(CudaRecurrent, IntegersMatchTheCpuBitwise) {
  for (const auto range : {ops::DynamicRange::tensor, ops::DynamicRange::sample})
    EXPECT_TRUE(bitwise_equal(run(range, Device::cuda()), run(range, Device::cpu())));
}

TEST_F(CudaRecurrent, DetectsNaN) {
  const Device device = Device::cuda();
  const Tensor x = Tensor::full({2, 3, 9}, std::numeric_limits<double>::quiet_NaN()).to(device);
  EXPECT_THROW((void)ops::lstm(x, {weight({8, 9}, 29, device), weight({8, 2}, 53, device)}, {}, {}, false,
                               ops::DynamicRange::sample)
                   .tensor()
                   .to(Device::cpu()),
               NumericError);
}

}  // namespace
}  // namespace fq::cuda_recurrent_test
