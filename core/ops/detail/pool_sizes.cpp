#include "fakequant/core/ops/detail/pool_sizes.h"

namespace fq::detail {

PoolSizes pool_sizes(const Shape& x, const ops::Pool2d& o, std::string_view op) {
  FQ_CHECK(x.size() == 4, op, "the input is {}: give [N, C, H, W]", to_string(x));
  std::array<std::int64_t, 2> out{}, stride{};
  for (std::size_t i = 0; i < 2; ++i) {
    stride[i] = o.stride[i] == 0 ? o.kernel[i] : o.stride[i];
    FQ_CHECK(o.kernel[i] >= 1 && stride[i] >= 1, op, "kernel {} and stride {} must be 1 or more", o.kernel[i],
             o.stride[i]);
    FQ_CHECK(o.padding[i] >= 0 && 2 * o.padding[i] <= o.kernel[i], op,
             "padding {} is not between 0 and half the kernel {}", o.padding[i], o.kernel[i]);
    const std::int64_t padded = x[2 + i] + 2 * o.padding[i];
    FQ_CHECK(x[2 + i] >= 1 && o.kernel[i] <= padded, op, "kernel {} is larger than the padded input {} of {}",
             o.kernel[i], padded, to_string(x));
    out[i] = (padded - o.kernel[i]) / stride[i] + 1;
  }
  return {x[0],      x[1],      x[2],         x[3],         o.kernel[0], o.kernel[1],
          stride[0], stride[1], o.padding[0], o.padding[1], out[0],      out[1]};
}

Shape pooled_shape(const PoolSizes& s) { return {s.n, s.c, s.oh, s.ow}; }

Attributes pool_attributes(const PoolSizes& s) {
  using Pair = std::vector<std::int64_t>;
  return {{"kernel", Pair{s.kh, s.kw}}, {"stride", Pair{s.sh, s.sw}}, {"padding", Pair{s.ph, s.pw}}};
}

}  // namespace fq::detail
