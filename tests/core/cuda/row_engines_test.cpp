// Products of rows that an engine rounds as it runs have the bits of the CPU.

#include <cmath>

#include <gtest/gtest.h>

#include "core/gradient_check.h"
#include "cuda_device.h"
#include "fakequant/core/error.h"
#include "fakequant/core/ops/engines/engine_ops.h"
#include "fakequant/core/quantized.h"

namespace fq::cuda_row_engines_test {
namespace {

using test::random_values;

class CudaRowEngines : public testing::Test {
 protected:
  void SetUp() override { FQ_NEEDS_CUDA(); }
};

/// A weight [outputs, columns] of `bits` bits: in blocks of `block` columns, or per channel for 0.
QuantizedTensor weight(std::int64_t outputs, std::int64_t columns, int bits, std::int64_t block) {
  const Tensor w = random_values({outputs, columns}, 7).to(DType::f32);
  const auto by = block == 0 ? Granularity::per_axis(0) : Granularity::blocks({{-1, block}});
  const Shape ranges = by.scale_shape(w.shape());
  Tensor amax = random_values(ranges, 9, 0.5, 2.0).to(DType::f32);
  if (block == 0) amax = amax.reshape({outputs});
  return quantize(w, Grid::from_amax(IntFormat{bits}, by, amax, "weight"));
}

QuantizedTensor on(Device device, const QuantizedTensor& w) {
  QuantizedTensor out{w.codes.to(device), w.grid, {}};
  out.grid.scale = w.grid.scale.to(device);
  out.grid.amax = w.grid.amax.to(device);
  return out;
}

struct Product {
  RowEngine engine;
  std::int64_t rows, outputs, columns;
  int bits;
  std::int64_t block;
  bool bias;
};

/// y, and the gradients of x and the bias.
std::vector<Tensor> run_product(Device device, const Product& p) {
  const BackwardScope floats(BackwardType::fp32);
  Tensor values = random_values({p.rows, p.columns}, 1, -3, 5).to(DType::f32);
  if (p.rows > 2)
    for (std::int64_t k = 0; k < p.columns; ++k) values.mutable_data<float>()[p.columns + k] = 0.0f;
  const Variable x(values.to(device), true), w(on(device, weight(p.outputs, p.columns, p.bits, p.block)));
  const Variable bias =
      p.bias ? Variable(random_values({p.outputs}, 3).to(DType::f32).to(device), true) : Variable();
  const Variable y = ops::engine_linear(x, w, bias, p.engine);
  y.backward(random_values({p.rows, p.outputs}, 4).to(DType::f32).to(device));
  std::vector<Tensor> out{y.tensor().to(Device::cpu()), x.grad().to(Device::cpu())};
  if (p.bias) out.push_back(bias.grad().to(Device::cpu()));
  return out;
}

TEST_F(CudaRowEngines, MatchTheCpuBitwise) {
  using enum RowEngine;
  for (const Product& p :
       {Product{ggml, 1, 8, 32, 4, 32, false}, Product{ggml, 7, 40, 96, 4, 32, true},
        Product{ggml, 5, 9, 64, 4, 32, true}, Product{ggml, 6, 33, 256, 8, 32, true},
        Product{ggml, 300, 64, 128, 8, 32, false}, Product{xnnpack, 1, 5, 32, 4, 32, false},
        Product{xnnpack, 9, 33, 128, 4, 64, true}, Product{xnnpack, 6, 17, 96, 4, 0, true},
        Product{xnnpack, 11, 40, 72, 8, 0, true}, Product{xnnpack, 4, 8, 33, 8, 0, false},
        Product{ort_dynamic, 6, 17, 40, 8, 0, true}}) {
    const auto gpu = run_product(Device::cuda(), p), host = run_product(Device::cpu(), p);
    const auto what =
        std::string(name(p.engine)) + " " + std::to_string(p.bits) + " of " + std::to_string(p.columns);
    EXPECT_TRUE(bitwise_equal(gpu[0], host[0])) << what;
    for (std::size_t i = 1; i < host.size(); ++i) {  // products of floats are added in another order
      const auto a = gpu[i].to_vector<float>(), b = host[i].to_vector<float>();
      for (std::size_t j = 0; j < b.size(); ++j)
        EXPECT_NEAR(a[j], b[j], 1e-4 * (1 + std::fabs(b[j]))) << what;
    }
  }
}

TEST_F(CudaRowEngines, ReportNaNLaterWithoutSynchronization) {
  for (const auto& [engine, bits, block] :
       {std::tuple{RowEngine::ggml, 4, 32}, {RowEngine::xnnpack, 4, 32}, {RowEngine::xnnpack, 8, 0}}) {
    const Variable w(on(Device::cuda(), weight(8, 64, bits, block)));
    Tensor values = random_values({3, 64}, 1).to(DType::f32);
    const Variable x(values.to(Device::cuda()));
    (void)ops::engine_linear(x, w, {}, engine);  // the first product chooses how codes are multiplied
    const auto waits = test::waits_so_far();
    const Variable y = ops::engine_linear(x, w, {}, engine);
    EXPECT_EQ(test::waits_so_far(), waits);
    values.mutable_data<float>()[70] = std::nanf("");
    const Variable bad = ops::engine_linear(Variable(values.to(Device::cuda())), w, {}, engine);
    EXPECT_THROW((void)bad.tensor().to(Device::cpu()), NumericError);
    EXPECT_NO_THROW((void)y.tensor().to(Device::cpu()));
  }
}

}  // namespace
}  // namespace fq::cuda_row_engines_test
