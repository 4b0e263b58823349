#include "fakequant/core/cpu/broadcast.h"

#include <vector>

#include "fakequant/core/convert.h"

namespace fq::cpu {

void sum_to(const Tensor& x, Tensor& out) {
  const auto target = broadcast_strides(out.shape(), Layout::row_major, x.shape());
  const Walk walk(x.shape(), x.layout(), {target, strides_of(x.shape(), x.layout())});
  std::vector<double> sums(static_cast<std::size_t>(out.numel()), 0.0);
  detail::visit_float(x.dtype(), "sum", [&]<class T>(T) {
    const T* in = x.data<T>(x.layout());
    const std::int64_t inner = walk.inner(), step = walk.step(0);
    for (std::int64_t row = 0; x.numel() > 0 && row < walk.rows(); ++row) {
      const T* p = in + row * inner;
      double* s = sums.data() + walk.offset(0, row);
      for (std::int64_t i = 0; i < inner; ++i) s[i * step] += static_cast<double>(p[i]);
    }
    T* result = out.mutable_data<T>();
    for (std::size_t i = 0; i < sums.size(); ++i) result[i] = static_cast<T>(sums[i]);
  });
}

}  // namespace fq::cpu
