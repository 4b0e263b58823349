#include "fakequant/core/ops/detail/pool_sizes.h"

namespace fq::detail {

PoolSizes pool_sizes(const Shape& x, const ops::Pool2d& o, std::string_view op) {
  FQ_CHECK(x.size() == 4, op, "the input is {}: give [N, C, H, W]", to_string(x));
  std::array<std::int64_t, 2> out{}, stride{}, end{};
  for (std::size_t i = 0; i < 2; ++i) {
    stride[i] = o.stride[i] == 0 ? o.kernel[i] : o.stride[i];
    FQ_CHECK(o.kernel[i] >= 1 && stride[i] >= 1, op, "kernel {} and stride {} must be 1 or more", o.kernel[i],
             o.stride[i]);
    end[i] = o.padding_end[i] < 0 ? o.padding[i] : o.padding_end[i];
    FQ_CHECK(o.padding[i] >= 0 && std::max(o.padding[i], end[i]) < o.kernel[i], op,
             "padding {} and {} is not between 0 and less than the kernel {}", o.padding[i], end[i],
             o.kernel[i]);
    const std::int64_t padded = x[2 + i] + o.padding[i] + end[i];
    FQ_CHECK(x[2 + i] >= 1 && o.kernel[i] <= padded, op, "kernel {} is larger than the padded input {} of {}",
             o.kernel[i], padded, to_string(x));
    const std::int64_t room = padded - o.kernel[i];
    out[i] = room / stride[i] + 1;
    const bool more = o.ceil_mode && room % stride[i] != 0 && out[i] * stride[i] < x[2 + i] + o.padding[i];
    if (more) ++out[i];
    FQ_CHECK((out[i] - 1) * stride[i] - o.padding[i] < x[2 + i], op,
             "padding {} behind {} leaves windows without a pixel", end[i], to_string(x));
  }
  return {x[0],      x[1],         x[2],         x[3],   o.kernel[0], o.kernel[1], stride[0],
          stride[1], o.padding[0], o.padding[1], out[0], out[1],      end[0],      end[1]};
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
