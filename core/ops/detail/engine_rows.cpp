#include "fakequant/core/ops/detail/engine_rows.h"

#include <algorithm>

#include "fakequant/core/backend/cpu/engines/engine_products.h"
#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/error.h"
#include "fakequant/core/numerics/detail/ggml_formulas.h"
#include "fakequant/core/ops/detail/code_products.h"
#include "fakequant/core/ops/detail/products.h"
#include "fakequant/core/ops/detail/row_product.h"

namespace fq::detail {
namespace {

constexpr const char* kNan = "[linear] the input has a NaN";

/// A weight on the host, with a scale for each block of each row.
struct HostWeight {
  Tensor codes, scale;

  explicit HostWeight(const QuantizedTensor& w) : codes(w.codes.to(Device::cpu())) {
    const Shape blocks = w.spec.granularity.scale_shape(w.codes.shape());
    scale = w.spec.scale.to(Device::cpu()).to(Layout::row_major).reshape(blocks);
  }
};

void check_numbers(const Tensor& x) {
  const auto* values = x.data<float>();
  int nan = 0;
#pragma omp simd reduction(| : nan)
  for (std::int64_t i = 0; i < x.numel(); ++i) nan |= values[i] != values[i] ? 1 : 0;
  if (nan != 0) throw NumericError(kNan);
}

Tensor result(const Tensor& x, const QuantizedTensor& w) {
  return Tensor::empty({x.dim(0), w.codes.dim(0)}, DType::f32);
}

/// fl(y + b), a separate node.
void add_bias_to(Tensor& y, const Tensor& bias) {
  if (bias.defined()) add_bias(y, Variable(bias));
}

}  // namespace

EngineRows ggml_rows(const Tensor& x, const QuantizedTensor& w, const Tensor& bias) {
  const Device device = x.device();
  const HostWeight weight(w);
  const Tensor in = x.to(Device::cpu());
  check_numbers(in);
  Tensor codes = Tensor::empty(in.shape(), DType::i8),
         steps = Tensor::empty({in.dim(0), in.dim(1) / ggml_block}, DType::f16), y = result(in, w);
  cpu::ggml_codes(in, cpu::GgmlRounding::activation, codes, steps);
  const Tensor scales = steps.to(DType::f32);
  const bool repack = w.spec.format.bits() == 4 && w.codes.dim(0) % 8 == 0;
  cpu::ggml_product(codes, scales, weight.codes, weight.scale, repack, y);
  y = y.to(device);
  add_bias_to(y, bias);
  QuantizedTensor rounded{codes, {}, {}};
  rounded.spec.granularity = Granularity::blocks({{-1, ggml_block}});
  rounded.spec.amax = rounded.spec.scale = scales;
  return {y, [rounded, device] { return dequantize(rounded).to(device); }};
}

EngineRows xnnpack_rows(const Tensor& x, const QuantizedTensor& w, const Tensor& bias) {
  const Device device = x.device();
  const HostWeight weight(w);
  const Tensor in = x.to(Device::cpu()), added = bias.defined() ? bias.to(Device::cpu()) : bias;
  check_numbers(in);
  Tensor codes = Tensor::empty(in.shape(), DType::i8), grids = Tensor::empty({in.dim(0), 2}),
         y = result(in, w);
  cpu::xnnpack_codes(in, codes, grids);
  if (w.spec.format.bits() <= 4) {
    cpu::xnnpack_block_product(codes, grids, weight.codes, weight.scale, added, y);
  } else if (y.numel() > 0) {
    Tensor sums = Tensor::empty(y.shape(), DType::i32);
    run(y.device(), &Kernels::exact_gemm, y.dim(0), y.dim(1), in.dim(1), Codes{codes.raw(), DType::i8, 128},
        Codes{weight.codes.raw(), DType::i8, 128}, sums);
    const Tensor of_weights = Tensor::from(cpu::code_sums(weight.codes, in.dim(1)), {y.dim(1)});
    cpu::xnnpack_channel_sums(sums, of_weights, grids, weight.scale, added, y);
  }
  return {y.to(device), [codes, grids, device] {
            Tensor values = Tensor::empty(codes.shape(), DType::f32);
            cpu::xnnpack_values(codes, grids, values);
            return values.to(device);
          }};
}

EngineRows ort_rows(const Tensor& x, std::int64_t ranges, const QuantizedTensor& w, const Tensor& bias) {
  const Device device = x.device();
  const std::int64_t rows = x.dim(0), columns = x.dim(1), outputs = w.codes.dim(0);
  Tensor codes = Tensor::empty({ranges, x.numel() / ranges}, DType::u8, device),
         grids = Tensor::empty({ranges, 2}, DType::f32, device);
  run(device, &Kernels::dynamic_codes, x.reshape(codes.shape()), codes, grids, std::string(kNan));
  Tensor sums = Tensor::empty({rows, outputs}, DType::i32, device),
         y = Tensor::empty({ranges, rows / ranges * outputs}, DType::f32, device);
  run(device, &Kernels::exact_gemm, rows, outputs, columns, Codes{codes.raw(), DType::u8, 255},
      codes_of(w, w.codes), sums);
  Tensor own = Tensor::empty({rows, 2}, DType::f32, device);
  std::vector<std::int64_t> range_of(static_cast<std::size_t>(rows));
  for (std::int64_t m = 0; m < rows; ++m) range_of[static_cast<std::size_t>(m)] = m / (rows / ranges);
  run(device, &Kernels::take, grids, 0, range_of, 0.0, own);
  y = y.reshape({rows, outputs});
  run(device, &Kernels::dynamic_sums, sums, row_sums(w), own, factor_scale(w, 0), y);
  add_bias_to(y, bias);
  return {y, [codes, grids, device, shape = x.shape()] {
            Tensor values = Tensor::empty(codes.shape(), DType::f32, device);
            run(device, &Kernels::dynamic_values, codes, grids, values);
            return values.reshape(shape);
          }};
}

}  // namespace fq::detail
