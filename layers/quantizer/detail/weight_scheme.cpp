#include "fakequant/layers/quantizer/detail/weight_scheme.h"

#include <cmath>
#include <vector>

#include "fakequant/calib/detail/ranges.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/numerics/detail/grid_formulas.h"
#include "fakequant/core/numerics/number_formats.h"
#include "fakequant/layers/quantizer/detail/block_ranges.h"
#include "fakequant/layers/quantizer/detail/ggml_scheme.h"
#include "fakequant/layers/quantizer/detail/grid_cache.h"

namespace fq::detail {
namespace {

/// Returns the float nearest to `w` that has the code.
float nearest_with_code(float w, float code, float scale, float bound) {
  const auto has_code = [&](float v) { return scalar::quantize_code(v, scale, -bound, bound) == code; };
  if (has_code(w)) return w;
  const float middle = code * scale;
  // The edge of the code's interval on the side of w. A tie may round to the neighbour, so step towards the
  // middle until the code fits.
  float edge = (code + std::copysign(0.5f, w - middle)) * scale;
  while (!has_code(edge)) edge = std::nextafter(edge, middle);
  return edge;
}

constexpr float kLeastMean = 0x1p-24f;  // as in Grid::from_amax

/// Maps the elements of a row-major tensor to channels.
struct Channels {
  std::int64_t count = 1, inner;

  Channels(const Shape& shape, int axis) : inner(numel(shape)) {
    if (axis < 0) return;
    count = shape[static_cast<std::size_t>(axis)];
    inner = numel(Shape(shape.begin() + axis + 1, shape.end()));
  }
  [[nodiscard]] std::size_t of(std::size_t i) const {
    return i / static_cast<std::size_t>(inner) % static_cast<std::size_t>(count);
  }
};

// In double and in the order of elements: the scale does not depend on threads.
Tensor means(const std::vector<float>& values, const Channels& channels) {
  std::vector<double> sums(static_cast<std::size_t>(channels.count));
  for (std::size_t i = 0; i < values.size(); ++i) sums[channels.of(i)] += std::abs(values[i]);
  const double elements = static_cast<double>(values.size()) / static_cast<double>(channels.count);
  std::vector<float> out;
  for (const double sum : sums) out.push_back(static_cast<float>(sum / elements));
  return listed(Tensor::from<float>(out, {channels.count}));
}

/// Returns the codes of x by its signs: -1 below 0, +1 elsewhere. The scale is the mean |x| of each channel
/// of the descriptor's axis, or of all of x without an axis. Every gradient passes. Means are summed in
/// double on the host, in the order of the elements. A channel whose mean is at most 2^-24 has codes of 0.
/// Throws ArgumentError for an axis that x does not have and NumericError for a NaN or an infinity, both
/// naming the quantizer.
QuantizedTensor binary_codes(const Tensor& x, const QuantParams& params) {
  const QuantDescriptor& d = params.descriptor;
  const Granularity granularity = d.granularity(x.rank());
  const auto binary_grid = [&](const Granularity& by, const Tensor& amax) {
    auto out = Grid::from_amax(d.format(), by, amax, params.name, params.pow2, params.zero_point);
    out.pass_through_bwd = true;
    return out;
  };
  if (x.device().is_meta())
    // Only shapes matter on `meta`.
    return quantize(x, binary_grid(Granularity::per_tensor(), Tensor::scalar(1.0)), false);
  const std::vector<float> values = x.to(Device::cpu()).to(Layout::row_major).to_vector<float>();
  const Channels channels(x.shape(), granularity.single_axis(x.rank()));
  const Tensor mean = means(values, channels);
  check_finite(mean, "quantizer", params.name);
  const std::vector<float> range = mean.to_vector<float>();
  std::vector<std::int8_t> codes(values.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    codes[i] = range[channels.of(i)] <= kLeastMean ? 0 : values[i] < 0 ? -1 : 1;
  const Tensor row_major = Tensor::from<std::int8_t>(codes, x.shape());
  return {row_major.to(x.layout()).to(x.device()),
          binary_grid(channels.count == 1 ? Granularity::per_tensor() : granularity, mean).to(x.device()),
          {}};
}

class BinaryScheme final : public WeightScheme {
 public:
  BinaryScheme() noexcept : WeightScheme("binary") {}

  void check(const QuantParams& params) const override {
    const QuantDescriptor& d = params.descriptor;
    FQ_CHECK(params.arithmetic == Arithmetic::deployed, "quantizer",
             "{} is binary in arithmetic reference, which has no such weights: use arithmetic deployed",
             quantizer_label(params.name));
    // Narrow 2-bit integers have the codes -1, 0 and 1.
    FQ_CHECK(d.format() == Format(IntFormat{2, false, true}), "quantizer",
             "{} is binary with {}: use signed narrow integers of 2 bits, or leave binary out",
             quantizer_label(params.name), to_string(d.format()));
    FQ_CHECK(d.block_sizes().empty() && d.axis().values().size() <= 1, "quantizer",
             "{} is binary with blocks or several axes: use one axis, or leave binary out",
             quantizer_label(params.name));
    FQ_CHECK(d.dynamic() && !d.scale_amax(), "quantizer",
             "{} is binary, its scale is the mean of each step: use dynamic, without scale_amax",
             quantizer_label(params.name));
  }
  [[nodiscard]] bool uses_range() const noexcept override { return false; }
  [[nodiscard]] QuantizedTensor quantize(const Variable& w, const WeightState& state,
                                         bool /*with_mask*/) const override {
    return binary_codes(w.tensor(), state.params);
  }
  [[nodiscard]] float weight_with_code(float /*w*/, float code, float amax, float /*bound*/) const override {
    return code * amax;
  }
  [[nodiscard]] bool has_scales_without_range() const noexcept override { return true; }
};

class Bf16ScaleScheme final : public WeightScheme {
 public:
  Bf16ScaleScheme() noexcept : WeightScheme("bf16_scales") {}

  [[nodiscard]] Tensor stored_scales(const Tensor& scales) const override {
    return scales.to(DType::bf16).to(DType::f32);
  }
  [[nodiscard]] float stored_scale(float scale) const override { return static_cast<float>(bfloat16(scale)); }
};

}  // namespace

void WeightScheme::check(const QuantParams& /*params*/) const {}

QuantizedTensor WeightScheme::quantize(const Variable& w, const WeightState& state, bool with_mask) const {
  return fq::quantize(w.tensor(), state.grids.input_grid(w), with_mask);
}

float WeightScheme::weight_with_code(float w, float code, float amax, float bound) const {
  return nearest_with_code(w, code, scalar::range_scale(amax, bound, least_amax), bound);
}

void WeightScheme::check_packing(const std::string& /*quantizer*/) const {}

// Schemes are static objects in functions, one each, because they compare by address.
const WeightScheme& plain_weights() noexcept {
  static const WeightScheme scheme("none");
  return scheme;
}

const WeightScheme& binary_weights() noexcept {
  static const BinaryScheme scheme;
  return scheme;
}

const WeightScheme& bf16_scale_weights() noexcept {
  static const Bf16ScaleScheme scheme;
  return scheme;
}

// "binary" is saved as a switch of its own and has no name here.
const WeightScheme& weight_scheme_named(std::string_view name) {
  for (const WeightScheme* scheme : {&plain_weights(), &bf16_scale_weights()})
    if (scheme->name() == name) return *scheme;
  for (const GgmlRounding rounding : {GgmlRounding::q4_0, GgmlRounding::q8_0})
    if (ggml_weights(rounding).name() == name) return ggml_weights(rounding);
  throw ArgumentError(
      fmt::format("[quantizer] engine_grid '{}' is unknown: the file may be of a newer version", name));
}

}  // namespace fq::detail
