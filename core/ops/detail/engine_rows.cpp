#include "fakequant/core/ops/detail/engine_rows.h"

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/numerics/detail/ggml_formulas.h"
#include "fakequant/core/ops/detail/product.h"
#include "fakequant/core/ops/detail/recurrent_sequence.h"

namespace fq::detail {
EngineWeight engine_weight(const QuantizedTensor& w, RowEngine engine) {
  EngineWeight out;
  out.outputs = w.codes.dim(0);
  // ONNX Runtime and XNNPACK's 8-bit kernels multiply plain codes. `sums` correct for the zero point of x.
  const int bits = w.grid.format.bits();
  if ((engine != RowEngine::ggml && engine != RowEngine::xnnpack) ||
      (engine == RowEngine::xnnpack && bits > 4)) {
    out.codes = w;
    out.sums = row_sums(w);
    return out;
  }
  const Tensor codes = w.codes.to(Layout::row_major);
  const Tensor scales =
      w.grid.scale.to(Layout::row_major).reshape(w.grid.granularity.scale_shape(w.codes.shape()));
  if (engine == RowEngine::ggml)
    // llama.cpp repacks only 4-bit weights whose number of outputs is a multiple of 8. Plain buffers add in
    // another order.
    run(codes.device(), &Kernels::ggml_operand, codes, scales, bits != 4 || out.outputs % 8 != 0,
        out.operand);
  else
    run(codes.device(), &Kernels::xnnpack_operand, codes, scales, out.operand);
  return out;
}

bool KeptEngineWeight::Version::is_of(const Tensor& other) const {
  // `tensor` keeps its memory alive: an equal address means the same storage. The version detects writes.
  return tensor.defined() && tensor.raw() == other.raw() && tensor.shape() == other.shape() &&
         version == other.version();
}

std::shared_ptr<const EngineWeight> KeptEngineWeight::of(const QuantizedTensor& w, RowEngine engine) {
  const std::scoped_lock lock(mutex_);
  if (kept_ && engine == engine_ && codes_.is_of(w.codes) && scale_.is_of(w.grid.scale)) return kept_;
  kept_ = nullptr;  // frees memory before the next weight is prepared
  kept_ = std::make_shared<const EngineWeight>(engine_weight(w, engine));
  codes_ = Version(w.codes);
  scale_ = Version(w.grid.scale);
  engine_ = engine;
  return kept_;
}

void KeptEngineWeight::forget() {
  const std::scoped_lock lock(mutex_);
  kept_ = nullptr;
  codes_ = scale_ = Version();
}

namespace {

constexpr const char* kNan = "[linear] the input has a NaN";

/// Computes y = fl(y + b) as a separate node.
void add_optional_bias(Tensor& y, const Tensor& bias) {
  if (bias.defined()) add_bias(y, Variable(bias));
}

}  // namespace

EngineRows ggml_rows(const Tensor& x, const EngineWeight& w, const Tensor& bias) {
  const Device device = x.device();
  Tensor codes = Tensor::empty(x.shape(), DType::i8, device),
         steps = Tensor::empty({x.dim(0), x.dim(1) / ggml_block}, DType::f16, device),
         y = Tensor::empty({x.dim(0), w.outputs}, DType::f32, device);
  run(device, &Kernels::ggml_blocks, x, Tensor(), GgmlRounding::activation, std::string(kNan), codes, steps);
  const Tensor scales = steps.to(DType::f32);
  // y is the sum over blocks b of (sum of 32 q_x * q_w) * d_x[b] * d_w[b], in the order of the engine.
  run(device, &Kernels::ggml_product, codes, scales, w.operand, bias, y);
  QuantizedTensor rounded{codes, {}, {}};
  rounded.grid.granularity = Granularity::blocks({{-1, ggml_block}});
  rounded.grid.amax = rounded.grid.scale = scales;
  return {y, {}, rounded};
}

GgmlBlocks ggml_weight_blocks(const Tensor& w, const Tensor& extreme_codes, GgmlRounding rounding) {
  GgmlBlocks out{Tensor::empty(w.shape(), DType::i8, w.device()),
                 Tensor::empty({w.dim(0), w.dim(1) / ggml_block}, DType::f16, w.device())};
  run(w.device(), &Kernels::ggml_blocks, w, extreme_codes.to(w.device()), rounding, std::string(), out.codes,
      out.steps);
  return out;
}

// x: [M, K], one asymmetric int8 grid per row. qc8w weights have exact int32 sums with a correction for the
// zero point; weights of up to 4 bits (qb4w) have a kernel of their own, as their blocks end in floats.
EngineRows xnnpack_rows(const Tensor& x, const EngineWeight& w, const Tensor& bias) {
  const Device device = x.device();
  Tensor codes = Tensor::empty(x.shape(), DType::i8, device),
         grids = Tensor::empty({x.dim(0), 2}, DType::f32, device),
         y = Tensor::empty({x.dim(0), w.outputs}, DType::f32, device);
  run(device, &Kernels::xnnpack_rows, x, std::string(kNan), codes, grids);
  if (!w.sums.defined()) {
    run(device, &Kernels::xnnpack_block_product, codes, grids, w.operand, bias, y);
  } else if (y.numel() > 0) {
    Tensor sums = Tensor::empty(y.shape(), DType::i32, device);
    run(device, &Kernels::exact_gemm, y.dim(0), y.dim(1), x.dim(1), Codes{codes.raw(), DType::i8, 128},
        Codes{w.codes.codes.raw(), DType::i8, 128}, sums);
    run(device, &Kernels::xnnpack_channel_sums, sums, w.sums, grids, w.codes.grid.scale, bias, y);
  }
  return {y, [codes, grids, device] {
            Tensor values = Tensor::empty(codes.shape(), DType::f32, device);
            run(device, &Kernels::xnnpack_values, codes, grids, values);
            return values;
          }};
}

EngineRows ort_rows(const Tensor& x, std::int64_t ranges, const EngineWeight& w, const Tensor& bias) {
  const Device device = x.device();
  // `ranges` is 1, or the number of samples: rows of a sample are contiguous.
  const std::int64_t rows = x.dim(0), columns = x.dim(1), outputs = w.sums.numel();
  Tensor codes = Tensor::empty({ranges, x.numel() / ranges}, DType::u8, device),
         grids = Tensor::empty({ranges, 2}, DType::f32, device);
  run(device, &Kernels::dynamic_codes, x.reshape(codes.shape()), codes, grids, std::string(kNan));
  Tensor sums = Tensor::empty({rows, outputs}, DType::i32, device),
         y = Tensor::empty({ranges, rows / ranges * outputs}, DType::f32, device);
  run(device, &Kernels::exact_gemm, rows, outputs, columns, Codes{codes.raw(), DType::u8, 255},
      as_codes(w.codes, w.codes.codes), sums);
  Tensor own = Tensor::empty({rows, 2}, DType::f32, device);
  std::vector<std::int64_t> range_indices(static_cast<std::size_t>(rows));
  // Kernels expect one grid per row, while rows of a sample share a grid.
  for (std::int64_t m = 0; m < rows; ++m) range_indices[static_cast<std::size_t>(m)] = m / (rows / ranges);
  run(device, &Kernels::take, grids, 0, range_indices, 0.0, own);
  y = y.reshape({rows, outputs});
  run(device, &Kernels::dynamic_sums, sums, w.sums, own, factor_scale(w.codes, 0), y);
  add_optional_bias(y, bias);
  return {y, [codes, grids, device, shape = x.shape()] {
            Tensor values = Tensor::empty(codes.shape(), DType::f32, device);
            run(device, &Kernels::dynamic_values, codes, grids, values);
            return values.reshape(shape);
          }};
}

}  // namespace fq::detail
