#include <cmath>
#include <utility>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/reference/detail/block_ranges.h"
#include "fakequant/reference/detail/torchao_grid.h"
#include "fakequant/reference/observers/observers.h"

namespace fq::torch_ref {
namespace {

constexpr const char* kAffineRule = "observer";

// Half, rounded down as Python's // does, also for negative numbers.
int halved(int v) { return v >= 0 ? v / 2 : (v - 1) / 2; }

// reduce_range uses one bit less, for x86 engines whose int16 sums of u8 * s8 pairs saturate (DEPLOY §1).
int lowest_code(const ObserverOptions& o) {
  const int lower = o.quant_min.value_or(o.dtype == DType::i8 ? -128 : 0);
  return o.reduce_range ? halved(lower) : lower;
}

int highest_code(const ObserverOptions& o) {
  const int upper = o.quant_max.value_or(o.dtype == DType::i8 ? 127 : 255);
  return o.reduce_range ? halved(upper) : upper;
}

void check(const ObserverOptions& o) {
  FQ_CHECK(o.dtype == DType::i8 || o.dtype == DType::u8, kAffineRule, "codes of {}: use i8 or u8",
           name(o.dtype));
  FQ_CHECK(o.eps > 0, kAffineRule, "eps is {}: it must be positive", o.eps);
  const bool symmetric =
      o.qscheme == QScheme::per_tensor_symmetric || o.qscheme == QScheme::per_channel_symmetric;
  FQ_CHECK(!(symmetric && o.reduce_range && o.dtype == DType::u8), kAffineRule,
           "a symmetric scheme of u8 has no reduced range: use i8, or an affine scheme");
  FQ_CHECK(o.quant_min.has_value() == o.quant_max.has_value(), kAffineRule,
           "only one of quant_min and quant_max is given: use both");
  if (!o.quant_min) return;
  FQ_CHECK(*o.quant_min <= 0 && *o.quant_max >= 0 && *o.quant_min < *o.quant_max, kAffineRule,
           "quant_min {} to quant_max {}: use a range with 0 and at least one other code", *o.quant_min,
           *o.quant_max);
  FQ_CHECK(*o.quant_max - *o.quant_min < 256, kAffineRule,
           "quant_min {} to quant_max {} are more than 256 codes", *o.quant_min, *o.quant_max);
}

Tensor to_tensor(const std::vector<float>& values, DType dtype) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())}).to(dtype);
}

}  // namespace

QScheme qscheme(std::string_view name) {
  if (name == "per_tensor_affine") return QScheme::per_tensor_affine;
  if (name == "per_tensor_symmetric") return QScheme::per_tensor_symmetric;
  if (name == "per_channel_affine") return QScheme::per_channel_affine;
  FQ_CHECK(name == "per_channel_symmetric", kAffineRule,
           "the scheme '{}': use per_tensor_affine, per_tensor_symmetric, per_channel_affine or "
           "per_channel_symmetric",
           name);
  return QScheme::per_channel_symmetric;
}

AffineRule::AffineRule(ObserverOptions options)
    // Checked before the bounds are computed from the options.
    : options_((check(options), options)),
      quant_min_(lowest_code(options)),
      quant_max_(highest_code(options)) {}

bool AffineRule::is_symmetric() const {
  return options_.qscheme == QScheme::per_tensor_symmetric ||
         options_.qscheme == QScheme::per_channel_symmetric;
}

QParams AffineRule::choose(const Tensor& min_val, const Tensor& max_val) const {
  const auto lower = min_val.to_vector<float>(), upper = max_val.to_vector<float>();
  const auto first = static_cast<float>(quant_min_), last = static_cast<float>(quant_max_),
             steps = last - first;
  const auto eps = static_cast<float>(options_.eps);
  // torch.ao's zero point of symmetric quint8: 128, or (qmin + qmax) // 2 for a custom range.
  const int middle = options_.quant_min ? halved(quant_min_ + quant_max_) : 128;
  std::vector<float> scales, zeros;
  for (std::size_t i = 0; i < lower.size(); ++i) {
    if (std::isnan(lower[i])) throw NumericError("[observer] a NaN was observed: leave such batches out");
    // The range includes 0, so that zero padding and ReLU outputs have an exact code.
    const float lo = scalar::clamp_max(lower[i], 0.0f), hi = scalar::clamp_min(upper[i], 0.0f);
    const float scale =
        is_symmetric() ? scalar::symmetric_scale(lo, hi, steps / 2) : scalar::asymmetric_scale(lo, hi, steps);
    scales.push_back(scalar::clamp_min(scale, eps));
    const auto centre = static_cast<float>(options_.dtype == DType::u8 ? middle : 0);
    zeros.push_back(is_symmetric() ? centre : scalar::asymmetric_zero_point(lo, scales.back(), first, last));
  }
  return {to_tensor(scales, DType::f32), to_tensor(zeros, is_symmetric() ? DType::i64 : DType::i32)};
}

}  // namespace fq::torch_ref

namespace fq::torchao {
namespace {

constexpr const char* kAffineObserver = "affine_quantized_minmax_observer";

// Returns f(running, next) by element, in the type of `running`.
template <class F>
Tensor merged(const Tensor& running, const std::vector<float>& next, F f) {
  auto values = running.to(DType::f32).to_vector<float>();
  for (std::size_t i = 0; i < next.size(); ++i) values[i] = f(values[i], next[i]);
  return Tensor::from(values, running.shape()).to(running.dtype());
}

}  // namespace

AffineQuantizedMinMaxObserver::AffineQuantizedMinMaxObserver(MappingType mapping_type,
                                                             IntegerType target_dtype,
                                                             Granularity granularity, QParamsOptions options)
    : mapping_type_(mapping_type),
      target_dtype_(target_dtype),
      granularity_(std::move(granularity)),
      options_(std::move(options)) {
  // Rejects a range that does not fit the type on construction instead of after calibration.
  (void)Codes::of(target_dtype_, options_.range, kAffineObserver);
}

void AffineQuantizedMinMaxObserver::observe(const Tensor& x) {
  check_float(x.dtype(), "input", kAffineObserver);
  if (x.numel() == 0) return;
  const Reduction r = reduction(x.shape(), get_block_size(x.shape(), granularity_), kAffineObserver);
  const Shape& shape = options_.keepdim ? r.kept : r.result;
  if (options_.keepdim) check_kept(r, kAffineObserver);
  const detail::Ranges ranges = detail::block_ranges(x, r.block, kAffineObserver);
  if (!min_.defined()) {
    min_ = Tensor::from(ranges.lower, shape).to(x.dtype());
    max_ = Tensor::from(ranges.upper, shape).to(x.dtype());
    return;
  }
  // Ranges keep the type of x, because choose_qparams rounds its operations to that type.
  FQ_CHECK(min_.shape() == shape && min_.dtype() == x.dtype(), kAffineObserver,
           "ranges are {} {}, before they were {} {}: observe one tensor only", name(x.dtype()),
           to_string(shape), name(min_.dtype()), to_string(min_.shape()));
  min_ = merged(min_, ranges.lower, fq::detail::smaller);
  max_ = merged(max_, ranges.upper, fq::detail::larger);
}

QParams AffineQuantizedMinMaxObserver::calculate_qparams() const {
  FQ_CHECK(min_.defined(), kAffineObserver, "nothing was observed: call observe() first");
  return choose_qparams_affine_with_min_max(min_, max_, mapping_type_, target_dtype_, options_);
}

}  // namespace fq::torchao
