#include "fakequant/layers/quantizer/detail/arithmetic.h"

#include <cmath>

#include "fakequant/calib/detail/ranges.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/ops/elementwise.h"
#include "fakequant/core/tape.h"
#include "fakequant/layers/quantizer/detail/block_ranges.h"
#include "fakequant/layers/quantizer/detail/weight_codes.h"
#include "fakequant/layers/quantizer/detail/weight_scheme.h"
#include "fakequant/reference/detail/broadcast.h"
#include "fakequant/reference/modelopt.h"
#include "fakequant/reference/pytorch_quantization.h"

namespace fq::detail {
namespace {

constexpr double kSamples = 64;  // samples of a typical batch

bool is_16_bit(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

/// fl(a * b) as `dtype`: exact in f32 for two 16-bit factors, so rounded once.
Tensor product(const Tensor& a, const Tensor& b, DType dtype) {
  if (a.device().is_meta()) return Tensor::empty(a.shape(), dtype, a.device(), a.layout());
  const NoGrad no_grad;
  const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
  return ops::multiply(Variable(a.to(wide)), Variable(b.to(wide))).tensor().to(dtype);
}

// PyTorch's promotion of float tensors: rank 0 does not promote.
DType promoted(const Tensor& x, const Tensor& scale) {
  if (scale.rank() == 0 || scale.dtype() == x.dtype() || x.dtype() == DType::f64) return x.dtype();
  return scale.dtype() == DType::f64 ? DType::f64 : DType::f32;
}

Tensor scaled(const Tensor& amax, double factor) {
  return used_ranges(amax.to(DType::f32), 0, static_cast<float>(factor));
}

/// Returns ranges that broadcast against the view. A list of ranges lies along the kept axes.
Tensor broadcast_ready(const Tensor& amax, const BlockView& view) {
  const Shape ranges = view.range_shape();
  return amax.rank() == 1 && amax.numel() == numel(ranges) ? amax.reshape(ranges) : amax;
}

/// Returns x clipped by the learned range, with gradients for both.
Variable clipped(const Variable& x, const Variable& amax, bool is_unsigned) {
  const Variable lower = is_unsigned ? Variable(Tensor::scalar(0)) : ops::neg(amax);
  return pytorch_quantization::clip(x, lower, amax);
}

}  // namespace

Variable pre_quant_scaled(const Variable& input, const Tensor& scale) {
  const Variable x = input.as_float();
  const Tensor values = x.tensor();
  FQ_CHECK(scale.rank() <= values.rank() &&
               broadcast_shapes(values.shape(), scale.shape(), "pre_quant_scale") == values.shape(),
           "pre_quant_scale", "the scale {} does not broadcast to the input {}", to_string(scale.shape()),
           to_string(values.shape()));
  return record("pre_quant_scale", product(values, scale, promoted(values, scale)), {x},
                [scale, dtype = values.dtype()](const Tensor& dy) {
                  return std::vector<Tensor>{product(dy, scale, dy.dtype()).to(dtype)};
                });
}

Variable widen_to_f32(const Variable& x) {
  const auto* values = std::get_if<Tensor>(&x.value());
  if (values == nullptr || !is_16_bit(values->dtype())) return x;
  return record("to_f32", values->to(DType::f32), {x},
                [dtype = values->dtype()](const Tensor& dy) { return std::vector<Tensor>{dy.to(dtype)}; });
}

/// LSQ divides the gradient of a range by sqrt(n * bound), n elements of the batch (ops/quantize.h). The
/// factor replaces n by the elements of `kSamples` samples, so that the gradient does not depend on how a
/// batch is split.
double DeployedArithmetic::gradient_factor(const Variable& x, bool is_weight) const {
  const double factor = params_.descriptor.scale_amax().value_or(1);
  if (is_weight || params_.amax_gradient != AmaxGradient::lsq || x.rank() < 2) return factor;
  return factor * std::sqrt(static_cast<double>(x.dim(0)) / kSamples);
}

Variable DeployedArithmetic::quantize(const Variable& x, bool is_weight) const {
  const Variable values = widen_to_f32(x);
  const QuantDescriptor& d = params_.descriptor;
  // Several readers of one input share its codes, so that the input is rounded once. A weight outlives the
  // recording, and a layer may run in two recordings before the first backward pass. On `meta` its codes are
  // shared too, so that a memory plan counts them once, as WeightCodes keeps them on other devices.
  const bool shared = !is_weight || values.device().is_meta();
  Variable codes = shared ? grid_.cached_codes(values) : Variable();
  if (!codes.defined()) {
    const ops::LearnedRange learned{range_.learned(), params_.amax_gradient,
                                    gradient_factor(values, is_weight)};
    codes =
        ops::quantize(values, grid_.input_grid(values), learned.amax.defined() ? &learned : nullptr, shared);
    if (shared) grid_.cache_codes(values, codes);
  }
  return d.fake_quant() ? codes : Variable(codes.quantized()->codes);
}

Tensor DeployedArithmetic::values(const Tensor& x) const {
  const NoGrad no_grad;
  const Variable floats(x.to(DType::f32));
  return ops::quantize(floats, grid_.input_grid(floats)).tensor();
}

Variable WeightArithmetic::quantize(const Variable& x, bool /*is_weight*/) const {
  const Variable floats = widen_to_f32(x).as_float();
  return ops::attach_codes(floats, codes(floats));
}

Tensor WeightArithmetic::values(const Tensor& x) const { return dequantize(codes(Variable(x))); }

QuantizedTensor WeightArithmetic::codes(const Variable& x) const {
  return params_.weight_scheme->quantize(x, {params_, grid_, weight_.extreme_codes()}, false);
}

Tensor ReferenceArithmetic::values(const Tensor& x) const {
  const NoGrad no_grad;
  return quantize(Variable(x)).tensor();
}

Variable ReferenceArithmetic::quantize(const Variable& input, bool /*is_weight*/) const {
  const QuantDescriptor& d = params_.descriptor;
  FQ_CHECK(d.fake_quant(), "quantizer",
           "{} has fake_quant off: the reference arithmetic has no codes, use arithmetic deployed",
           quantizer_label(params_.name));
  const Variable x = input.as_float();
  (void)d.granularity(x.rank());  // throws for axes that x does not have
  if (d.has_dynamic_blocks()) return quantize_dynamic_blocks(x);
  const auto view = BlockView::of(d, x.shape());
  const Variable values = view.apply(x);
  const Tensor range = broadcast_ready(scaled_range(values.tensor(), view.kept()), view);
  check_broadcast(values.shape(), range.shape(), "quantizer");
  return view.restore(quantize_static(values, range));
}

/// Returns the range on the host, multiplied by the descriptor's scale_amax.
Tensor ReferenceArithmetic::scaled_range(const Tensor& values, const Axes& kept) const {
  const QuantDescriptor& d = params_.descriptor;
  const bool meta = values.device().is_meta();
  Tensor range = range_.amax();
  // On `meta` only the shape matters, so any range will do.
  if (!d.needs_amax()) range = meta ? Tensor::scalar(1.0) : amax(values.to(DType::f32), kept, "quantizer");
  range = range.to(Device::cpu());
  if (meta && !range.defined()) range = Tensor::scalar(1.0);
  FQ_CHECK(range.defined(), "quantizer",
           "{} has no amax: calibrate it, set amax, or make its descriptor dynamic",
           quantizer_label(params_.name));
  if (range_.learned().defined())
    range = range_.used().to(Device::cpu());
  else if (const auto factor = d.scale_amax())
    range = scaled(range, *factor);
  return params_.pow2 ? Grid::from_amax(d.format(), {}, range, params_.name, true).amax : range;
}

Variable ReferenceArithmetic::quantize_static(const Variable& input, const Tensor& amax) const {
  const QuantDescriptor& d = params_.descriptor;
  const BlockSizes& blocks = d.block_sizes();
  const bool pass = params_.passes_through();
  const Variable& learned = range_.learned();
  // The learned range gets its gradient from clip, as in pytorch-quantization. The quantizer itself has none
  // for amax.
  const Variable x = learned.defined() ? clipped(input, learned, d.is_unsigned()) : input;
  // FP4 of ModelOpt exists only in blocks along the last axis, [blocks, length].
  if (d.num_bits() == NumBits(2, 1)) {
    FQ_CHECK(blocks.lengths.size() == 1 && x.rank() == 2, "quantizer",
             "{} has FP4 blocks on several axes: the reference has them along the last axis",
             quantizer_label(params_.name));
    return modelopt::static_blockwise_fp4_fake_quant(x, amax, {}, blocks.scale_bits.has_value(), 448, {},
                                                     pass);
  }
  FQ_CHECK(
      !blocks.scale_bits, "quantizer",
      "scale_bits of the static blocks of {}: the reference keeps their scales as floats, leave it out or "
      "use arithmetic deployed",
      quantizer_label(params_.name));
  if (!d.num_bits().is_integer()) return scaled_e4m3(x, amax, {}, 4, 3, pass);
  const IntFormat format = d.format().integer();
  return fake_tensor_quant(x, amax, {}, format.bits, format.is_unsigned, format.narrow_range, pass);
}

Variable ReferenceArithmetic::quantize_dynamic_blocks(const Variable& x) const {
  const QuantDescriptor& d = params_.descriptor;
  const BlockSizes& blocks = d.block_sizes();
  const std::int64_t length = blocks.lengths.begin()->second;
  FQ_CHECK(blocks.scale_bits.has_value(), "quantizer",
           "dynamic blocks of {} without scale_bits: the reference has (4, 3) and (8, 0)",
           quantizer_label(params_.name));
  const bool e4m3_scales = *blocks.scale_bits == NumBits(4, 3);
  Amax global;
  if (e4m3_scales) {
    Tensor range = range_.amax();
    if (!range.defined() && x.device().is_meta()) range = Tensor::scalar(1.0);
    if (!d.dynamic() && !range.defined()) range_.check_known();
    // A dynamic descriptor without calibration uses the amax of this input.
    if (!range.defined()) range = amax(x.tensor().to(DType::f32), {}, "quantizer");
    global = scaled(range.to(Device::cpu()), d.scale_amax().value_or(1));
  }
  // ModelOpt runs its Triton kernel for NVFP4 and its CUDA extension for other formats. Their scales differ.
  const bool nvfp4 = d.num_bits() == NumBits(2, 1) && e4m3_scales && length == 16;
  const auto kernel = nvfp4 ? modelopt::BlockKernel::triton : modelopt::BlockKernel::cuda_ext;
  return modelopt::dynamic_block_quantize(x, d.num_bits(), *blocks.scale_bits, length, global, kernel,
                                          params_.passes_through());
}

std::unique_ptr<QuantizerArithmetic> make_arithmetic(const QuantParams& params, const QuantizerRange& range,
                                                     const GridCache& grid, const WeightCodes& weight) {
  if (params.arithmetic == Arithmetic::reference) return std::make_unique<ReferenceArithmetic>(params, range);
  if (!params.weight_scheme->uses_range()) return std::make_unique<WeightArithmetic>(params, grid, weight);
  return std::make_unique<DeployedArithmetic>(params, range, grid);
}

}  // namespace fq::detail
