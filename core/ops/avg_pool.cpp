#include <limits>

#include "fakequant/core/ops/detail/composite.h"
#include "fakequant/core/ops/detail/move.h"
#include "fakequant/core/ops/detail/pool_sizes.h"

namespace fq::ops {
namespace {

Tensor average(const Tensor& x, const detail::PoolSizes& sizes, bool include_padding) {
  Tensor y = Tensor::empty(detail::pooled_shape(sizes), x.dtype(), x.device(), Layout::channels_last);
  detail::run(x.device(), &detail::Kernels::avg_pool, x.to(Layout::channels_last), sizes, include_padding,
              Tensor(), y);
  return y;
}

/// Of codes, as the engine does: fl(q*s_x) is summed.
Tensor average(const QuantizedTensor& x, const detail::PoolSizes& sizes, bool include_padding) {
  if (bit_width(x.codes.dtype()) != 8) return average(dequantize(x), sizes, include_padding);
  Tensor y = Tensor::empty(detail::pooled_shape(sizes), DType::f32, x.codes.device(), Layout::channels_last);
  detail::run(y.device(), &detail::Kernels::avg_pool, x.codes.to(Layout::channels_last), sizes,
              include_padding, x.grid.scale, y);
  return y;
}

Backward spread(const detail::PoolSizes& sizes, bool include_padding) {
  return [sizes, include_padding](const Tensor& dy) {
    Tensor dx =
        Tensor::empty({sizes.n, sizes.c, sizes.h, sizes.w}, dy.dtype(), dy.device(), Layout::channels_last);
    detail::run(dx.device(), &detail::Kernels::avg_pool_backward, dy, sizes, include_padding, dx);
    return std::vector<Tensor>{dx};
  };
}

/// The integers of one scale whose sum over so many pixels is sure to stay in int32.
bool fits(const QuantizedTensor& x, std::int64_t pixels) {
  if (!detail::is_plain(x)) return false;
  const auto& format = x.grid.format.integer();
  const std::int64_t largest = std::max<std::int64_t>(-std::int64_t{format.lower()}, format.upper());
  return pixels <= std::numeric_limits<std::int32_t>::max() / largest;
}

PooledSums pooled_sums(const QuantizedTensor& x, const detail::PoolSizes& sizes) {
  PooledSums out{{}, x.grid.scale, sizes.window()};
  out.sums = Tensor::empty(detail::pooled_shape(sizes), DType::i32, x.codes.device(), Layout::channels_last);
  detail::run(out.sums.device(), &detail::Kernels::sum_pixels, x.codes.to(Layout::channels_last), out.sums);
  return out;
}

}  // namespace

Variable avg_pool2d(const Variable& input, const Pool2d& options) {
  constexpr std::string_view op = "avg_pool2d";
  FQ_CHECK(input.defined(), op, "the input is undefined");
  FQ_CHECK(options.dilation == (std::array<std::int64_t, 2>{1, 1}), op,
           "averages have no dilation: it is {} and {}", options.dilation[0], options.dilation[1]);
  const auto sizes = detail::pool_sizes(input.shape(), options, op);
  const bool padded = options.count_include_pad;
  auto attributes = detail::traced([&] {
    auto out = detail::pool_attributes(sizes);
    out.emplace_back("count_include_pad", padded);
    return out;
  });
  if (const auto* codes = input.quantized(); codes != nullptr && detail::is_plain(*codes)) {
    Averages averages{average(*codes, sizes, padded)};
    return detail::record(op, Accumulator{std::move(averages)}, {input}, spread(sizes, padded),
                          std::move(attributes));
  }
  const auto x = detail::floats(input, op);
  return detail::record(op, average(x.tensor, sizes, padded), {x.variable}, spread(sizes, padded),
                        std::move(attributes));
}

Variable adaptive_avg_pool2d(const Variable& input, std::array<std::int64_t, 2> size) {
  constexpr std::string_view op = "adaptive_avg_pool2d";
  FQ_CHECK(input.defined() && input.rank() == 4, op, "the input is {}: give [N, C, H, W]",
           input.defined() ? to_string(input.shape()) : "undefined");
  FQ_CHECK(size[0] >= 1 && size[1] >= 1 && input.dim(2) >= 1 && input.dim(3) >= 1, op,
           "{} x {} pixels of {}: use 1 or more", size[0], size[1], to_string(input.shape()));
  if (input.dim(2) % size[0] == 0 && input.dim(3) % size[1] == 0)
    return avg_pool2d(input, {.kernel = {input.dim(2) / size[0], input.dim(3) / size[1]}});
  const auto x = detail::floats(input, op);
  auto attributes = detail::traced([&] {
    return Attributes{{"size", std::vector<std::int64_t>{size[0], size[1]}}};
  });
  return detail::composite(op, {x.variable}, std::move(attributes), [&] {
    const Variable rows = detail::record_mix(op, x, 2, detail::adaptive_shares(input.dim(2), size[0]));
    return detail::record_mix(op, detail::floats(rows, op), 3,
                              detail::adaptive_shares(input.dim(3), size[1]));
  });
}

Variable global_avg_pool2d(const Variable& input) {
  constexpr std::string_view op = "global_avg_pool2d";
  FQ_CHECK(input.defined() && input.rank() == 4, op, "the input is {}: give [N, C, H, W]",
           input.defined() ? to_string(input.shape()) : "undefined");
  Pool2d options;
  options.kernel = {input.dim(2), input.dim(3)};
  const auto sizes = detail::pool_sizes(input.shape(), options, op);
  if (const auto* codes = input.quantized(); codes != nullptr && fits(*codes, sizes.window()))
    return detail::record(op, Accumulator{pooled_sums(*codes, sizes)}, {input}, spread(sizes, true));
  const auto x = detail::floats(input, op);
  return detail::record(op, average(x.tensor, sizes, true), {x.variable}, spread(sizes, true));
}

}  // namespace fq::ops
