// Products of rows that an engine rounds as it runs have the bits of the CPU.

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include <gtest/gtest.h>

#include "core/gradient_check.h"
#include "cuda_device.h"
#include "fakequant/core/backend/kernels.h"
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

/// Returns codes from `low` to `high`. One third of the codes are `low` or `high`.
Tensor extreme_codes(const Shape& shape, int low, int high, std::uint32_t seed) {
  Tensor codes = Tensor::empty(shape, DType::i8);
  auto* q = codes.mutable_data<std::int8_t>();
  for (std::int64_t i = 0; i < codes.numel(); ++i) {
    seed = seed * 1664525u + 1013904223u;
    const int other = low + static_cast<int>((seed >> 8) % static_cast<std::uint32_t>(high - low + 1));
    q[i] = static_cast<std::int8_t>((seed >> 24) % 3 != 0 ? other : (seed >> 4) % 2 == 0 ? low : high);
  }
  return codes;
}

/// Returns scales. Every `period`-th scale is 0, subnormal, infinite, huge or NaN. Period 0: no such scale.
Tensor special_scales(const Shape& shape, unsigned seed, std::int64_t period) {
  Tensor scales = random_values(shape, seed, 1e-3, 0.3).to(DType::f32);
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const float special[] = {0.0f, 1e-40f, infinity, -1e-42f, std::nanf(""), 3e38f};
  for (std::int64_t i = 0; period > 0 && i < scales.numel(); i += period)
    scales.mutable_data<float>()[i] = special[i / period % 6];
  return scales;
}

/// A product of codes and scales, by a kernel alone.
struct KernelProduct {
  std::int64_t rows, outputs, columns;
  std::int64_t block;  ///< XNNPACK: columns of a block; 0: ggml
  bool in_lanes = false;
  std::int64_t special = 0;  ///< see special_scales
};

Tensor kernel_product(Device device, const KernelProduct& p, const Tensor& w_codes) {
  using detail::Kernels;
  const std::int64_t blocks = p.columns / (p.block == 0 ? 32 : p.block);
  // The host's kernel for lanes does not take -128 in both operands.
  const Tensor x = extreme_codes({p.rows, p.columns}, p.in_lanes ? -127 : -128, 127, 5).to(device),
               scales = special_scales({p.outputs, blocks}, 6, p.special).to(device),
               bias = p.rows % 2 == 0 ? Tensor() : random_values({p.outputs}, 8).to(DType::f32).to(device);
  detail::EngineOperand w;
  Tensor y = Tensor::empty({p.rows, p.outputs}, DType::f32, device);
  if (p.block == 0) {
    const Tensor steps = special_scales({p.rows, blocks}, 9, p.special * 5).to(device);
    detail::run(device, &Kernels::ggml_operand, w_codes, scales, p.in_lanes, w);
    detail::run(device, &Kernels::ggml_product, x, steps, w, bias, y);
  } else {
    Tensor grids = special_scales({p.rows, 2}, 9, 0);
    for (std::int64_t m = 0; m < p.rows; ++m)
      grids.mutable_data<float>()[2 * m + 1] = static_cast<float>(m * 37 % 256 - 128);
    detail::run(device, &Kernels::xnnpack_operand, w_codes, scales, w);
    detail::run(device, &Kernels::xnnpack_block_product, x, grids.to(device), w, bias, y);
  }
  return y.to(Device::cpu());
}

/// Number of outputs whose bits differ. All NaNs are equal: their bits depend on the device.
std::int64_t different_bits(const Tensor& a, const Tensor& b) {
  const auto left = a.to_vector<float>(), right = b.to_vector<float>();
  return std::inner_product(
      left.begin(), left.end(), right.begin(), std::int64_t{0}, std::plus<>(), [](float x, float y) {
        const bool same = std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
        return same || (std::isnan(x) && std::isnan(y)) ? 0 : 1;
      });
}

TEST_F(CudaRowEngines, TilesMatchTheCpuBitwiseAtTheirEdges) {
  // Tiles have 128 rows and 128, 96 or 64 outputs, or 64 rows and 32 outputs in lanes; stages have 64
  // columns.
  for (const KernelProduct& p : {KernelProduct{1, 1, 32, 0},
                                 KernelProduct{128, 128, 64, 0},
                                 KernelProduct{127, 136, 96, 0},
                                 KernelProduct{129, 127, 160, 0},
                                 KernelProduct{257, 258, 32, 0},
                                 KernelProduct{33, 9, 1024, 0},
                                 KernelProduct{1, 1, 32, 32},
                                 KernelProduct{128, 96, 64, 32},
                                 KernelProduct{129, 97, 96, 32},
                                 KernelProduct{255, 193, 160, 32},
                                 KernelProduct{128, 64, 128, 64},
                                 KernelProduct{130, 65, 192, 64},
                                 KernelProduct{31, 130, 96, 96},
                                 KernelProduct{129, 63, 160, 160},
                                 KernelProduct{7, 66, 576, 192},
                                 KernelProduct{1, 1, 32, 0, true},
                                 KernelProduct{64, 32, 64, 0, true},
                                 KernelProduct{65, 33, 96, 0, true},
                                 KernelProduct{129, 70, 160, 0, true},
                                 KernelProduct{90, 24, 160, 0, false, 7},
                                 KernelProduct{131, 140, 96, 0, false, 31},
                                 KernelProduct{90, 25, 160, 0, true, 7},
                                 KernelProduct{60, 110, 96, 32, false, 11},
                                 KernelProduct{60, 71, 192, 64, false, 5}}) {
    const bool wide = p.in_lanes;
    const Tensor w = extreme_codes({p.outputs, p.columns}, wide ? -128 : -8, wide ? 127 : 7, 3);
    EXPECT_EQ(different_bits(kernel_product(Device::cuda(), p, w.to(Device::cuda())),
                             kernel_product(Device::cpu(), p, w)),
              0)
        << p.rows << " x " << p.outputs << " x " << p.columns << ", blocks of " << p.block;
  }
}

TEST_F(CudaRowEngines, MultiplyCodesThatAreNotAligned) {
  for (const KernelProduct& p : {KernelProduct{5, 8, 96, 0}, KernelProduct{5, 8, 96, 32}}) {
    const Tensor codes = extreme_codes({1 + p.outputs * p.columns}, -8, 7, 3);
    const auto view = [&](Device device) {
      return codes.to(device).slice(1, codes.numel()).reshape({p.outputs, p.columns});
    };
    EXPECT_EQ(different_bits(kernel_product(Device::cuda(), p, view(Device::cuda())),
                             kernel_product(Device::cpu(), p, view(Device::cpu()))),
              0);
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
