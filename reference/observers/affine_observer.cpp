#include <utility>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/reference/detail/torchao_grid.h"
#include "fakequant/reference/detail/torchao_ranges.h"
#include "fakequant/reference/observers/observers.h"

namespace fq::torchao {
namespace {

constexpr const char* kAffineObserver = "affine_quantized_minmax_observer";

/// The values that f keeps of two tensors of one shape.
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
  FQ_CHECK(min_.shape() == shape && min_.dtype() == x.dtype(), kAffineObserver,
           "ranges are {} {}, before they were {} {}: observe one tensor only", name(x.dtype()),
           to_string(shape), name(min_.dtype()), to_string(min_.shape()));
  min_ = merged(min_, ranges.lower, scalar::at_most<float>);
  max_ = merged(max_, ranges.upper, scalar::at_least<float>);
}

QParams AffineQuantizedMinMaxObserver::calculate_qparams() const {
  FQ_CHECK(min_.defined(), kAffineObserver, "nothing was observed: call observe() first");
  return choose_qparams_affine_with_min_max(min_, max_, mapping_type_, target_dtype_, options_);
}

}  // namespace fq::torchao
