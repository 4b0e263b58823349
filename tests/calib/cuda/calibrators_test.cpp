#include <limits>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "calib/random_tensors.h"
#include "cuda_device.h"
#include "fakequant/calib/calibrator.h"
#include "fakequant/calib/histogram.h"
#include "fakequant/core/descriptor.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/state_dict.h"
#include "same_numbers.h"

namespace fq::cuda_calibrators_test {
namespace {

class CudaCalibrators : public testing::Test {
 protected:
  void SetUp() override { FQ_NEEDS_CUDA(); }
};

const Shape kShape{6, 5, 9, 7};

Tensor magnitudes(const Tensor& x) {
  auto v = x.to_vector<float>();
  for (float& each : v) each = std::fabs(each);
  return Tensor::from(v, x.shape());
}

/// Batches that a pass gives: growing values, zeros, one layout and another.
std::vector<Tensor> batches(DType dtype) {
  return {heavy_tailed(kShape, 3).to(dtype), heavy_tailed(kShape, 8).to(Layout::channels_last).to(dtype),
          Tensor::zeros(kShape, dtype), magnitudes(heavy_tailed(kShape, 5)).to(dtype)};
}

/// Expects the collected state and the amax of the CPU; the amax stays on the device.
void compare(const std::string& method, const CalibratorOptions& options, const std::vector<Tensor>& data,
             const AmaxOptions& amax = {}) {
  const auto host = make_calibrator(method, options), gpu = make_calibrator(method, options);
  for (int pass = 0; pass < host->passes(); ++pass) {
    for (const Tensor& x : data) {
      host->collect(x);
      gpu->collect(x.to(Device::cuda()));
    }
    if (pass + 1 == host->passes()) break;
    host->next_pass();
    gpu->next_pass();
  }
  const Tensor expected = host->compute_amax(amax), got = gpu->compute_amax(amax);
  EXPECT_EQ(got.device(), Device::cpu()) << method;
  EXPECT_TRUE(bitwise_equal(got, expected)) << method << ": " << got << expected;
  EXPECT_EQ(gpu->minimum(), host->minimum()) << method;
  const StateDict state = host->state_dict(), own = gpu->state_dict();
  for (const auto& name : state.names())
    EXPECT_TRUE(bitwise_equal(own.at(name), state.at(name))) << method << ": " << name;
}

TEST_F(CudaCalibrators, MatchTheCpuForEveryMethodAndType) {
  for (const auto& method : QuantDescriptor::calib_methods())
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64})
      for (const Axes& axis : {Axes{}, Axes{0}, Axes{1}, Axes{-1}, Axes{0, 1}, Axes{1, 3}}) {
        if (!axis.empty() && dtype != DType::f32) continue;
        CalibratorOptions options{.axis = axis, .num_bins = 300};
        auto data = batches(dtype);
        if (method == "scale_sweep") data.resize(1);
        compare(std::string(method), options, data);
      }
}

TEST_F(CudaCalibrators, BuildHistogramsOfOneAndSeveralSweeps) {
  for (const std::string method : {"percentile", "one_pass", "two_pass"})
    for (const bool skip_zeros : {false, true})
      for (const int bins : {2, 129, 2048, 4096, 20000}) {
        const std::vector<Tensor> data{heavy_tailed({70001}, 2), heavy_tailed({3}, 9), Tensor::zeros({1001})};
        compare(method, {.num_bins = bins, .skip_zeros = skip_zeros}, data);
      }
  compare("percentile", {.grid = HistogramGrid::numpy}, {heavy_tailed({999}, 4), heavy_tailed({1000}, 7)});
  const Tensor x = heavy_tailed({3, 1001}, 5);
  compare("one_pass", {}, {x.slice(1, 2), x.slice(1, 3)});
}

TEST_F(CudaCalibrators, SearchRangesOfEveryFormat) {
  const Tensor x = heavy_tailed({5, 4103}, 6), positive = magnitudes(x);
  for (const NumBits& bits :
       {NumBits(2), NumBits(4), NumBits(8), NumBits(9), NumBits(16), NumBits(4, 3), NumBits(2, 1)})
    for (const Axes& axis : {Axes{}, Axes{0}, Axes{1}})
      for (const std::string method : {"mse_search", "scale_sweep"}) {
        const CalibratorOptions options{
            .axis = axis, .num_bits = bits, .narrow_range = true, .multiplier_step = 0.3};
        compare(method, options, {x});
        compare(method, options, {positive}, {.num_bits = bits});
      }
  compare("mse_search", {.is_unsigned = true}, {positive, positive});
  compare("mse_search", {}, {positive, positive}, {.is_unsigned = true});
  compare("mse_search", {}, {Tensor::zeros({100}), x});
  compare("scale_sweep", {.axis = {0}, .num_bits = {2, 1}}, {heavy_tailed({700, 16}, 3)});
}

TEST_F(CudaCalibrators, CalibrateBiases) {
  for (const BiasMethod method : {BiasMethod::mean, BiasMethod::max_min})
    for (const Axes& axis : {Axes{}, Axes{1}, Axes{0, 2}}) {
      BiasCalibrator host(method, axis), gpu(method, axis);
      for (const Tensor& x : batches(DType::f32)) {
        host.collect(x);
        gpu.collect(x.to(Device::cuda()));
      }
      EXPECT_TRUE(bitwise_equal(gpu.compute_bias(), host.compute_bias()));
    }
  const Tensor x = heavy_tailed({3, 40001}, 2);
  EXPECT_TRUE(bitwise_equal(octav_amax(x.to(Device::cuda()), {0}, 4, false), octav_amax(x, {0}, 4, false)));
}

TEST_F(CudaCalibrators, RejectInvalidInput) {
  const auto max = make_calibrator("max"), histogram = make_calibrator("percentile");
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    Tensor x = Tensor::full({20001}, 1);
    x.mutable_data<float>()[20000] = bad;
    EXPECT_THROW(max->collect(x.to(Device::cuda())), NumericError);
    EXPECT_THROW(histogram->collect(x.to(Device::cuda())), NumericError);
  }
  max->collect(Tensor::empty({0, 3}, DType::f32, Device::cuda()));
  EXPECT_TRUE(max->empty());
}

}  // namespace
}  // namespace fq::cuda_calibrators_test
