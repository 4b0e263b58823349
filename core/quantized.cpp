#include "fakequant/core/quantized.h"

#include "fakequant/core/check.h"
#include "fakequant/core/cpu/block_codes.h"
#include "fakequant/core/cpu/codes.h"
#include "fakequant/core/cuda/codes.h"
#include "fakequant/core/cuda/scales.h"
#include "fakequant/core/grid_formulas.h"
#include "fakequant/core/profile.h"
#include "fakequant/core/quantizer_checks.h"

namespace fq {

namespace {

using detail::GridFormat;
using detail::least_amax;

constexpr const char* kRanges = "it must be finite and not negative";

void check_amax(float amax, const std::string& name) {
  FQ_CHECK(detail::is_range(amax), "quantizer", "amax of '{}' is {}: {}", name, amax, kRanges);
}

/// Ranges and scales by the rule, from the ranges as they were given.
template <class Rule>
void make_scales(QuantSpec& spec, const Rule& rule) {
  if (spec.amax.device().is_cuda())
    return cuda::make_scales(
        spec, rule,
        fmt::format("[quantizer] amax of '{}' is negative, infinite or NaN: {}", spec.name, kRanges));
  if (spec.amax.device().is_meta()) return;
  auto* ranges = spec.amax.mutable_data<float>();
  auto* scales = spec.scale.mutable_data<float>();
  for (std::int64_t i = 0; i < spec.amax.numel(); ++i) {
    check_amax(ranges[i], spec.name);
    const auto made = rule(ranges[i]);
    ranges[i] = made.amax;
    scales[i] = made.scale;
  }
}

}  // namespace

QuantSpec QuantSpec::from_amax(Format format, Granularity granularity, Tensor amax, std::string name,
                               bool pow2, int zero_point) {
  QuantSpec spec{.format = format,
                 .granularity = std::move(granularity),
                 .amax = amax.to(DType::f32).clone(),
                 .scale = Tensor::empty(amax.shape(), DType::f32, amax.device()),
                 .zero_point = zero_point,
                 .name = std::move(name)};
  make_scales(spec, detail::FromAmax{GridFormat::of(format), pow2});
  return spec;
}

QuantSpec QuantSpec::with_scale_bits(Format format, Granularity granularity, Tensor amax, NumBits scale_bits,
                                     float global, std::string name) {
  const bool e4m3 = scale_bits == NumBits(4, 3);
  FQ_CHECK(e4m3 || scale_bits == NumBits(8, 0), "quantizer",
           "scale_bits of '{}' are {}: use (4, 3) or (8, 0)", name, to_string(scale_bits));
  QuantSpec spec{.format = format,
                 .granularity = std::move(granularity),
                 .amax = amax.to(DType::f32).clone(),
                 .scale = Tensor::empty(amax.shape(), DType::f32, amax.device()),
                 .name = std::move(name),
                 .scale_bits = e4m3 ? 4 : 1};
  check_amax(global, spec.name);
  const float unit = global <= least_amax ? 1.0f : global / (448.0f * format.bound());
  if (e4m3) spec.unit = unit;
  make_scales(spec, detail::OfScaleBits{GridFormat::of(format), e4m3, unit});
  return spec;
}

QuantSpec QuantSpec::to(Device device) const {
  QuantSpec out = *this;
  out.amax = amax.to(device);
  out.scale = scale.to(device);
  return out;
}

Tensor code_values(const QuantizedTensor& x) {
  Tensor out = Tensor::empty(x.shape(), DType::f32, x.codes.device(), x.layout());
  const bool blocks = cpu::in_blocks(x.spec, x.shape(), "code_values");
  if (out.device().is_cuda()) cuda::decode(x, out);
  if (!out.device().is_cpu()) return out;
  if (blocks)
    cpu::decode_blocks(x, false, out);
  else
    cpu::decode(x.codes, out);
  return out;
}

Tensor dequantize(const QuantizedTensor& x) {
  const ProfileScope profile("epilogue");
  Tensor out = Tensor::empty(x.shape(), DType::f32, x.codes.device(), x.layout());
  const bool blocks = cpu::in_blocks(x.spec, x.shape(), "dequantize");
  if (!blocks) static_cast<void>(cpu::channel_axis(x.spec, x.shape(), "dequantize"));
  detail::check_device(x.spec, x.codes, "dequantize");
  if (out.device().is_cuda()) cuda::dequantize(x, out);
  if (!out.device().is_cpu()) return out;
  if (blocks)
    cpu::decode_blocks(x, true, out);
  else
    cpu::dequantize(x, out);
  return out;
}

namespace {

/// A tensor as its kernel takes it, and its codes to be filled.
struct Quantizing {
  Tensor x;
  QuantizedTensor out;
  bool blocks;
  int axis;

  Quantizing(const Tensor& input, const QuantSpec& spec, bool with_mask)
      : blocks(cpu::in_blocks(spec, input.shape(), "quantize")),
        axis(blocks ? -1 : cpu::channel_axis(spec, input.shape(), "quantize")) {
    detail::check_device(spec, input, "quantize");
    x = blocks ? input.to(DType::f32).to(Layout::row_major) : input.to(DType::f32);
    out = {Tensor::empty(x.shape(), spec.format.code_dtype(), x.device(), x.layout()), spec, {}};
    if (with_mask) out.mask = Tensor::empty(x.shape(), DType::u1, x.device(), x.layout());
  }

  void run_on_cpu() {
    const bool nan = blocks ? cpu::quantize_blocks(x, out) : cpu::quantize(x, axis, out);
    if (nan) throw NumericError(detail::nan_message(out.spec));
  }
  [[nodiscard]] cuda::QuantizeCall call() { return {x, out, detail::nan_message(out.spec)}; }
};

}  // namespace

QuantizedTensor quantize(const Tensor& x, const QuantSpec& spec, bool with_mask) {
  const ProfileScope profile("quantize");
  Quantizing one(x, spec, with_mask);
  if (x.device().is_cuda()) cuda::quantize(one.call());
  if (x.device().is_cpu()) one.run_on_cpu();
  return one.out;
}

std::vector<QuantizedTensor> quantize(std::span<const QuantizeRequest> requests) {
  const ProfileScope profile("quantize");
  std::vector<Quantizing> all;
  all.reserve(requests.size());
  std::vector<cuda::QuantizeCall> calls;
  for (const auto& request : requests) {
    Quantizing& one = all.emplace_back(request.x, request.spec, request.with_mask);
    FQ_CHECK(one.x.device() == all.front().x.device(), "quantize",
             "'{}' is on {}, another on {}: give one device", request.spec.name, to_string(one.x.device()),
             to_string(all.front().x.device()));
    if (one.x.device().is_cuda()) calls.push_back(one.call());
    if (one.x.device().is_cpu()) one.run_on_cpu();
  }
  if (!calls.empty()) cuda::quantize(calls);
  std::vector<QuantizedTensor> out;
  for (auto& one : all) out.push_back(std::move(one.out));
  return out;
}

bool same_grid(const QuantSpec& a, const QuantSpec& b) {
  const auto equal = [](const Tensor& x, const Tensor& y) {
    const bool same = x.storage().shares(y.storage()) && x.raw() == y.raw() && x.shape() == y.shape();
    return same || bitwise_equal(x, y);
  };
  return a.format == b.format && a.granularity == b.granularity && equal(a.scale, b.scale) &&
         equal(a.amax, b.amax);
}

Tensor apply_mask(const Tensor& dy, const Tensor& mask) {
  if (!mask.defined()) return dy;
  FQ_CHECK(dy.shape() == mask.shape(), "apply_mask", "the gradient is {}, the mask {}", to_string(dy.shape()),
           to_string(mask.shape()));
  FQ_CHECK(is_floating(dy.dtype()), "apply_mask", "the gradient is {}: use f32, f64, f16 or bf16",
           name(dy.dtype()));
  const Tensor same = dy.to(mask.layout());
  Tensor out = Tensor::empty(dy.shape(), dy.dtype(), dy.device(), mask.layout());
  if (out.device().is_cpu()) cpu::apply_mask(same, mask, out);
  if (out.device().is_cuda()) cuda::apply_mask(same, mask, out);
  return out;
}

namespace detail {

void check_device(const QuantSpec& spec, const Tensor& x, std::string_view function) {
  FQ_CHECK(x.device().is_meta() || spec.scale.device() == x.device(), function,
           "amax of '{}' is on {}, the input on {}: move one of them", spec.name,
           to_string(spec.scale.device()), to_string(x.device()));
}

std::string nan_message(const QuantSpec& spec) {
  return fmt::format("[quantize] a NaN reached the quantizer '{}'", spec.name);
}

}  // namespace detail
}  // namespace fq
