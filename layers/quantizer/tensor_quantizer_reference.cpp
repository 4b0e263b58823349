#include <algorithm>
#include <cmath>
#include <limits>

#include "fakequant/calib/detail/ranges.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/ops/elementwise.h"
#include "fakequant/layers/quantizer/detail/block_view.h"
#include "fakequant/layers/quantizer/tensor_quantizer.h"
#include "fakequant/reference/detail/broadcast.h"
#include "fakequant/reference/modelopt.h"
#include "fakequant/reference/modelopt_blocks.h"
#include "fakequant/reference/pytorch_quantization.h"

namespace fq {
namespace {

Tensor scaled(const Tensor& amax, double factor) {
  return detail::used_ranges(amax.to(DType::f32), 0, static_cast<float>(factor));
}

/// A list of ranges lies along the kept axes; anything else broadcasts as it is.
Tensor broadcast_ready(const Tensor& amax, const detail::BlockView& view) {
  const Shape ranges = view.range_shape();
  return amax.rank() == 1 && amax.numel() == numel(ranges) ? amax.reshape(ranges) : amax;
}

/// What the learned range leaves of x, with a gradient for both.
Variable clipped(const Variable& x, const Variable& amax, bool is_unsigned) {
  const Variable lower = is_unsigned ? Variable(Tensor::scalar(0)) : ops::neg(amax);
  return pytorch_quantization::clip(x, lower, amax);
}

/// The smallest normal and the largest number of a type; of f64 those of f32.
struct Numbers {
  float least, most;

  static Numbers of(DType dtype) {
    if (dtype == DType::f16) return {0x1p-14f, 65504};
    return {std::numeric_limits<float>::min(),
            dtype == DType::bf16 ? 0x1.fep127f : std::numeric_limits<float>::max()};
  }
};

Tensor squeezed(const Tensor& x) {
  Shape shape;
  std::ranges::copy_if(x.shape(), std::back_inserter(shape), [](std::int64_t size) { return size != 1; });
  return x.reshape(shape);
}

}  // namespace

Variable TensorQuantizer::quantize_reference(const Variable& input) const {
  FQ_CHECK(descriptor_.fake_quant(), "quantizer",
           "'{}' is to give codes: the reference arithmetic gives values, use arithmetic deployed", name_);
  const Variable x = input.as_float();
  (void)descriptor_.granularity(x.rank());  // refuses axes that x does not have
  if (descriptor_.has_dynamic_blocks()) return reference_dynamic(x);
  const auto view = detail::BlockView::of(descriptor_, x.shape());
  const Variable values = view.apply(x);
  const bool meta = x.device().is_meta();
  Tensor range = amax();
  if (!descriptor_.needs_amax())
    range =
        meta ? Tensor::scalar(1.0) : detail::amax(values.tensor().to(DType::f32), view.kept(), "quantizer");
  range = range.to(Device::cpu());
  if (meta && !range.defined()) range = Tensor::scalar(1.0);
  FQ_CHECK(range.defined(), "quantizer",
           "'{}' has no amax: calibrate it, set amax, or make its descriptor dynamic", name_);
  if (learned_.defined())
    range = used_amax().to(Device::cpu());
  else if (const auto factor = descriptor_.scale_amax())
    range = scaled(range, *factor);
  if (pow2_) range = QuantSpec::from_amax(descriptor_.format(), {}, range, name_, true).amax;
  range = broadcast_ready(range, view);
  detail::check_broadcast(values.shape(), range.shape(), "quantizer");
  return view.restore(reference_values(values, range));
}

Variable TensorQuantizer::reference_values(const Variable& input, const Tensor& amax) const {
  const BlockSizes& blocks = descriptor_.block_sizes();
  const bool pass = pass_through_bwd();
  const Variable x = learned_.defined() ? clipped(input, learned_, descriptor_.is_unsigned()) : input;
  if (descriptor_.num_bits() == NumBits(2, 1)) {
    FQ_CHECK(blocks.lengths.size() == 1 && x.rank() == 2, "quantizer",
             "'{}' has FP4 blocks on several axes: the reference has them along the last axis", name_);
    return modelopt::static_blockwise_fp4_fake_quant(x, amax, {}, blocks.scale_bits.has_value(), 448, {},
                                                     pass);
  }
  FQ_CHECK(
      !blocks.scale_bits, "quantizer",
      "scale_bits of the static blocks of '{}': the reference keeps their scales as floats, leave it out or "
      "use arithmetic deployed",
      name_);
  if (!descriptor_.num_bits().is_integer()) return scaled_e4m3(x, amax, {}, 4, 3, pass);
  const IntFormat format = descriptor_.format().integer();
  return fake_tensor_quant(x, amax, {}, format.bits, format.is_unsigned, format.narrow_range, pass);
}

Variable TensorQuantizer::reference_dynamic(const Variable& x) const {
  const BlockSizes& blocks = descriptor_.block_sizes();
  const std::int64_t length = blocks.lengths.begin()->second;
  FQ_CHECK(blocks.scale_bits.has_value(), "quantizer",
           "dynamic blocks of '{}' without scale_bits: the reference has (4, 3) and (8, 0)", name_);
  Amax global;
  if (*blocks.scale_bits == NumBits(4, 3)) {
    const bool meta = x.device().is_meta();
    const Tensor known = meta && !amax().defined() ? Tensor::scalar(1.0) : amax();
    FQ_CHECK(known.defined() || descriptor_.dynamic(), "quantizer",
             "'{}' has no amax: calibrate it, set amax, or make its descriptor dynamic", name_);
    const Tensor range = known.defined() ? known : detail::amax(x.tensor().to(DType::f32), {}, "quantizer");
    global = scaled(range.to(Device::cpu()), descriptor_.scale_amax().value_or(1));
  }
  const bool nvfp4 =
      descriptor_.num_bits() == NumBits(2, 1) && *blocks.scale_bits == NumBits(4, 3) && length == 16;
  return modelopt::dynamic_block_quantize(
      x, descriptor_.num_bits(), *blocks.scale_bits, length, global,
      nvfp4 ? modelopt::BlockKernel::triton : modelopt::BlockKernel::cuda_ext, pass_through_bwd());
}

Tensor TensorQuantizer::export_amax(const Shape& input) const {
  const Tensor range = amax();
  if (!range.defined()) return {};
  const bool blocks = !descriptor_.block_sizes().empty() && !descriptor_.has_dynamic_blocks();
  FQ_CHECK(!blocks || !input.empty(), "export_amax", "'{}' has blocks: give the shape of its input", name_);
  Tensor out = range.to(Device::cpu()).to(DType::f32).clone();
  auto* values = out.mutable_data<float>();
  const auto [smallest, most] = Numbers::of(range.dtype());
  const float least = descriptor_.has_dynamic_blocks() ? 0.0f : smallest;
  for (std::int64_t i = 0; i < out.numel(); ++i)
    values[i] = std::clamp(values[i] == 0 ? descriptor_.format().bound() : values[i], least, most);
  out = out.to(range.dtype());
  if (descriptor_.has_dynamic_blocks() || (blocks && numel(input) == 0)) return out;
  const auto view = detail::BlockView::of(descriptor_, input);
  if (view.is_last_axis()) {
    Shape rows(input.begin(), input.end() - 1);
    rows.push_back(-1);
    return out.reshape(rows);
  }
  const std::size_t kept = view.kept().values().size();
  const bool per_axis = descriptor_.block_sizes().empty() || view.range_shape().size() == input.size();
  if (kept == 0 && per_axis && out.rank() == 0) return out.reshape({1});
  return kept == 1 && per_axis ? squeezed(out) : out;
}

}  // namespace fq
