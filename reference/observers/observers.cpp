#include "fakequant/reference/observers/observers.h"

#include "fakequant/core/detail/check.h"
#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/reference/detail/block_ranges.h"

namespace fq::torch_ref {
namespace {

constexpr const char* kObserver = "observer";

/// running[i] = f(running[i], next[i]).
template <class F>
void update(Tensor& running, const std::vector<float>& next, F f) {
  auto* values = running.mutable_data<float>();
  for (std::size_t i = 0; i < next.size(); ++i) values[i] = f(values[i], next[i]);
}

}  // namespace

ObserverOptions check_per_tensor(ObserverOptions options, const char* function) {
  FQ_CHECK(options.qscheme == QScheme::per_tensor_affine || options.qscheme == QScheme::per_tensor_symmetric,
           function, "the scheme is per channel: use per_tensor_affine or per_tensor_symmetric");
  return options;
}

RangeObserver::RangeObserver(ObserverOptions options, std::optional<int> ch_axis,
                             std::optional<double> averaging_constant)
    : rule_(options), ch_axis_(ch_axis), averaging_constant_(averaging_constant) {}

void RangeObserver::observe(const Tensor& x) {
  FQ_CHECK(is_floating(x.dtype()), kObserver, "the input is {}: use a float type", name(x.dtype()));
  // Per tensor one block covers x and the result has rank 0; per channel blocks have size 1 along ch_axis.
  Shape block = x.shape(), result;
  if (ch_axis_) {
    const auto axis = static_cast<std::size_t>(normalize_axis(*ch_axis_, x.rank(), kObserver));
    result = {block[axis]};
    block[axis] = 1;
  }
  // After normalize_axis, so that an axis that x lacks throws for empty batches too.
  if (x.numel() == 0) return;
  const detail::Ranges ranges = detail::block_ranges(x, block, kObserver);
  // The first batch sets the range also with an averaging constant, as in torch.
  if (!min_.defined()) {
    min_ = Tensor::from(ranges.lower, result);
    max_ = Tensor::from(ranges.upper, result);
    return;
  }
  FQ_CHECK(min_.shape() == result, kObserver,
           "there are {} channels, before there were {}: observe one tensor only", to_string(result),
           to_string(min_.shape()));
  if (averaging_constant_) {
    const auto average = [c = *averaging_constant_](float v, float next) {
      return scalar::moving_average(v, next, c);
    };
    update(min_, ranges.lower, average);
    update(max_, ranges.upper, average);
  } else {
    update(min_, ranges.lower, fq::detail::smaller);
    update(max_, ranges.upper, fq::detail::larger);
  }
}

QParams RangeObserver::calculate_qparams() const {
  FQ_CHECK(min_.defined(), kObserver, "nothing was observed: call observe() first");
  return rule_.choose(min_, max_);
}

MinMaxObserver::MinMaxObserver(ObserverOptions options)
    : RangeObserver(check_per_tensor(options, kObserver), {}, {}) {}

MovingAverageMinMaxObserver::MovingAverageMinMaxObserver(double averaging_constant, ObserverOptions options)
    : RangeObserver(check_per_tensor(options, kObserver), {}, averaging_constant) {}

PerChannelMinMaxObserver::PerChannelMinMaxObserver(int ch_axis, ObserverOptions options)
    : RangeObserver(options, ch_axis, {}) {}

MovingAveragePerChannelMinMaxObserver::MovingAveragePerChannelMinMaxObserver(double averaging_constant,
                                                                             int ch_axis,
                                                                             ObserverOptions options)
    : RangeObserver(options, ch_axis, averaging_constant) {}

}  // namespace fq::torch_ref
