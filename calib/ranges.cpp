#include "fakequant/calib/ranges.h"

#include "fakequant/calib/cpu/count.h"
#include "fakequant/calib/cuda/count.h"
#include "fakequant/calib/cuda/ranges.h"

namespace fq::detail {

Tensor amax(const Tensor& x, const Axes& kept, std::string_view function) {
  return (x.device().is_cuda() ? cuda::amax : cpu::amax)(x, kept, function);
}

cpu::Range range(const Tensor& x) { return (x.device().is_cuda() ? cuda::range : cpu::range)(x); }

void count(const Tensor& x, const cpu::BinRule& rule, std::span<std::int64_t> counts) {
  if (x.device().is_cuda()) return cuda::count(x, rule, counts);
  cpu::count({x.data<float>(x.layout()), static_cast<std::size_t>(x.numel())}, rule, counts);
}

}  // namespace fq::detail
