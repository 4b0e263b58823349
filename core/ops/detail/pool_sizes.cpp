#include "fakequant/core/ops/detail/pool_sizes.h"

namespace fq::detail {

PoolSizes pool_sizes(const Shape& x, const ops::Pool2d& o, std::string_view op) {
  FQ_CHECK(x.size() == 4, op, "the input is {}: give [N, C, H, W]", to_string(x));
  const PoolAxis h = pool_axis(x, o, 0, o.kernel[0], op), w = pool_axis(x, o, 1, o.kernel[1], op);
  return {x[0],     x[1],     x[2],     x[3],        h.reach,     w.reach, h.stride,
          w.stride, h.before, w.before, h.positions, w.positions, h.after, w.after};
}

Shape pooled_shape(const PoolSizes& s) { return {s.n, s.c, s.oh, s.ow}; }

Attributes pool_attributes(const PoolSizes& s) {
  using Pair = std::vector<std::int64_t>;
  const auto is_more = [](std::int64_t in, std::int64_t kernel, std::int64_t stride, std::int64_t out) {
    return (in - kernel) / stride + 1 < out;
  };
  const bool ceil =
      is_more(s.h + s.ph + s.eh, s.kh, s.sh, s.oh) || is_more(s.w + s.pw + s.ew, s.kw, s.sw, s.ow);
  return {{"kernel", Pair{s.kh, s.kw}},      {"stride", Pair{s.sh, s.sw}}, {"padding", Pair{s.ph, s.pw}},
          {"padding_end", Pair{s.eh, s.ew}}, {"dilation", Pair{1, 1}},     {"ceil_mode", ceil}};
}

}  // namespace fq::detail
