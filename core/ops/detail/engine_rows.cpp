#include "fakequant/core/ops/detail/engine_rows.h"

#include <algorithm>

#include "fakequant/core/backend/cpu/engines/engine_products.h"
#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/error.h"
#include "fakequant/core/numerics/detail/ggml_formulas.h"
#include "fakequant/core/ops/detail/code_products.h"
#include "fakequant/core/ops/detail/products.h"

namespace fq::detail {
namespace {

constexpr const char* kNan = "[linear] the input has a NaN";

void check_numbers(const Tensor& x) {
  const auto* values = x.data<float>();
  int nan = 0;
#pragma omp simd reduction(| : nan)
  for (std::int64_t i = 0; i < x.numel(); ++i) nan |= values[i] != values[i] ? 1 : 0;
  if (nan != 0) throw NumericError(kNan);
}

Tensor result(const Tensor& x, std::int64_t outputs) {
  return Tensor::empty({x.dim(0), outputs}, DType::f32);
}

/// fl(y + b), a separate node.
void add_bias_to(Tensor& y, const Tensor& bias) {
  if (bias.defined()) add_bias(y, Variable(bias));
}

}  // namespace

EngineRows ggml_rows(const Tensor& x, const EngineWeight& w, const Tensor& bias) {
  const Device device = x.device();
  const Tensor in = x.to(Device::cpu());
  check_numbers(in);
  Tensor codes = Tensor::empty(in.shape(), DType::i8),
         steps = Tensor::empty({in.dim(0), in.dim(1) / ggml_block}, DType::f16),
         y = result(in, w.packed.outputs);
  cpu::ggml_codes(in, cpu::GgmlRounding::activation, codes, steps);
  const Tensor scales = steps.to(DType::f32);
  cpu::ggml_product(codes, scales, w.packed, y);
  y = y.to(device);
  add_bias_to(y, bias);
  QuantizedTensor rounded{codes, {}, {}};
  rounded.spec.granularity = Granularity::blocks({{-1, ggml_block}});
  rounded.spec.amax = rounded.spec.scale = scales;
  return {y, [rounded, device] { return dequantize(rounded).to(device); }};
}

EngineRows xnnpack_rows(const Tensor& x, const EngineWeight& w, const Tensor& bias) {
  const Device device = x.device();
  const Tensor in = x.to(Device::cpu()), added = bias.defined() ? bias.to(Device::cpu()) : bias;
  check_numbers(in);
  Tensor codes = Tensor::empty(in.shape(), DType::i8), grids = Tensor::empty({in.dim(0), 2});
  cpu::xnnpack_codes(in, codes, grids);
  Tensor y = result(in, w.sums.defined() ? w.sums.numel() : w.packed.outputs);
  if (!w.sums.defined()) {
    cpu::xnnpack_block_product(codes, grids, w.packed, added, y);
  } else if (y.numel() > 0) {
    Tensor sums = Tensor::empty(y.shape(), DType::i32);
    run(y.device(), &Kernels::exact_gemm, y.dim(0), y.dim(1), in.dim(1), Codes{codes.raw(), DType::i8, 128},
        Codes{w.codes.codes.raw(), DType::i8, 128}, sums);
    cpu::xnnpack_channel_sums(sums, w.sums, grids, w.codes.spec.scale, added, y);
  }
  return {y.to(device), [codes, grids, device] {
            Tensor values = Tensor::empty(codes.shape(), DType::f32);
            cpu::xnnpack_values(codes, grids, values);
            return values.to(device);
          }};
}

EngineRows ort_rows(const Tensor& x, std::int64_t ranges, const EngineWeight& w, const Tensor& bias) {
  const Device device = x.device();
  const std::int64_t rows = x.dim(0), columns = x.dim(1), outputs = w.sums.numel();
  Tensor codes = Tensor::empty({ranges, x.numel() / ranges}, DType::u8, device),
         grids = Tensor::empty({ranges, 2}, DType::f32, device);
  run(device, &Kernels::dynamic_codes, x.reshape(codes.shape()), codes, grids, std::string(kNan));
  Tensor sums = Tensor::empty({rows, outputs}, DType::i32, device),
         y = Tensor::empty({ranges, rows / ranges * outputs}, DType::f32, device);
  run(device, &Kernels::exact_gemm, rows, outputs, columns, Codes{codes.raw(), DType::u8, 255},
      codes_of(w.codes, w.codes.codes), sums);
  Tensor own = Tensor::empty({rows, 2}, DType::f32, device);
  std::vector<std::int64_t> range_of(static_cast<std::size_t>(rows));
  for (std::int64_t m = 0; m < rows; ++m) range_of[static_cast<std::size_t>(m)] = m / (rows / ranges);
  run(device, &Kernels::take, grids, 0, range_of, 0.0, own);
  y = y.reshape({rows, outputs});
  run(device, &Kernels::dynamic_sums, sums, w.sums, own, factor_scale(w.codes, 0), y);
  add_bias_to(y, bias);
  return {y, [codes, grids, device, shape = x.shape()] {
            Tensor values = Tensor::empty(codes.shape(), DType::f32, device);
            run(device, &Kernels::dynamic_values, codes, grids, values);
            return values.reshape(shape);
          }};
}

}  // namespace fq::detail
