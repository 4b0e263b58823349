#include "fakequant/core/ops/pool.h"

#include <limits>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/moves.h"
#include "fakequant/core/ops/detail/operator.h"
#include "fakequant/core/ops/detail/pool_sizes.h"
#include "fakequant/core/ops/elementwise.h"
#include "fakequant/core/ops/shape.h"

namespace fq::detail {

PoolSizes pool_sizes(const Shape& x, const ops::Pool2d& o, std::string_view op) {
  FQ_CHECK(x.size() == 4, op, "the input is {}: use [N, C, H, W]", to_string(x));
  const PoolAxis h = pool_axis(x, o, 0, o.kernel[0], op), w = pool_axis(x, o, 1, o.kernel[1], op);
  return {x[0],     x[1],     x[2],     x[3],        h.reach,     w.reach, h.stride,
          w.stride, h.before, w.before, h.positions, w.positions, h.after, w.after};
}

Shape pooled_shape(const PoolSizes& s) { return {s.n, s.c, s.oh, s.ow}; }

Attributes pool_attributes(const PoolSizes& s) {
  using Pair = std::vector<std::int64_t>;
  // `sizes` has the number of windows but not the rounding that gave it. More windows than floor mode means
  // ceil mode.
  const auto is_more = [](std::int64_t in, std::int64_t kernel, std::int64_t stride, std::int64_t out) {
    return (in - kernel) / stride + 1 < out;
  };
  const bool ceil =
      is_more(s.h + s.ph + s.eh, s.kh, s.sh, s.oh) || is_more(s.w + s.pw + s.ew, s.kw, s.sw, s.ow);
  return {{"kernel", Pair{s.kh, s.kw}},      {"stride", Pair{s.sh, s.sw}}, {"padding", Pair{s.ph, s.pw}},
          {"padding_end", Pair{s.eh, s.ew}}, {"dilation", Pair{1, 1}},     {"ceil_mode", ceil}};
}

}  // namespace fq::detail

namespace fq::ops {
namespace {

Tensor average(const Tensor& x, const detail::PoolSizes& sizes, bool include_padding) {
  Tensor y = Tensor::empty(detail::pooled_shape(sizes), x.dtype(), x.device(), Layout::channels_last);
  detail::run(x.device(), &detail::Kernels::avg_pool, x.to(Layout::channels_last), sizes, include_padding,
              Tensor(), y);
  return y;
}

/// Averages codes as the engine does: sums fl(q*s_x).
Tensor average(const QuantizedTensor& x, const detail::PoolSizes& sizes, bool include_padding) {
  // The kernel that adds fl(q * s_x) has a variant for one-byte codes only.
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

/// Returns whether x has integers of one scale whose sum over `pixels` pixels always fits int32. Global
/// pooling sums codes exactly and rounds once. Window averages are float sums, as engines compute them.
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
           "dilation is {} and {}: average pooling requires 1", options.dilation[0], options.dilation[1]);
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
  FQ_CHECK(input.defined() && input.rank() == 4, op, "the input is {}: use [N, C, H, W]",
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
  FQ_CHECK(input.defined() && input.rank() == 4, op, "the input is {}: use [N, C, H, W]",
           input.defined() ? to_string(input.shape()) : "undefined");
  Pool2d options;
  options.kernel = {input.dim(2), input.dim(3)};
  const auto sizes = detail::pool_sizes(input.shape(), options, op);
  if (const auto* codes = input.quantized(); codes != nullptr && fits(*codes, sizes.window()))
    return detail::record(op, Accumulator{pooled_sums(*codes, sizes)}, {input}, spread(sizes, true));
  const auto x = detail::floats(input, op);
  return detail::record(op, average(x.tensor, sizes, true), {x.variable}, spread(sizes, true));
}

namespace {

constexpr std::string_view kMaxPool = "max_pool2d";

struct Pooled {
  Tensor values, argmax;
};

/// Max pooling of a plain tensor of any code or float type. Computes argmax only on request. `factor` is for
/// sums: channels whose value decreases with the sum pool the smallest sum.
Pooled pool(const Tensor& input, const detail::PoolSizes& sizes, bool with_argmax,
            const Tensor& factor = {}) {
  const Shape shape = detail::pooled_shape(sizes);
  Pooled out{Tensor::empty(shape, input.dtype(), input.device(), Layout::channels_last), {}};
  const DType window_positions = sizes.window() <= detail::byte_places ? DType::u8 : DType::i32;
  if (with_argmax) out.argmax = Tensor::empty(shape, window_positions, input.device(), Layout::channels_last);
  detail::run(input.device(), &detail::Kernels::max_pool, input.to(Layout::channels_last), sizes, out.values,
              with_argmax ? &out.argmax : nullptr, factor);
  return out;
}

// E4M3 codes are sign and magnitude. They are mapped to i8 in the order of their values, pooled as integers
// and mapped back: the maximum needs no decoding.
Tensor reordered(const Tensor& bytes, DType dtype) {
  Tensor out = Tensor::empty(bytes.shape(), dtype, bytes.device(), bytes.layout());
  detail::run(out.device(), &detail::Kernels::reorder_e4m3, bytes, out);
  return out;
}

Pooled pool_codes(const Tensor& codes, const detail::PoolSizes& sizes, bool with_argmax) {
  if (codes.dtype() != DType::f8_e4m3) return pool(codes, sizes, with_argmax);
  Pooled out = pool(reordered(codes, DType::i8), sizes, with_argmax);
  out.values = reordered(out.values, DType::f8_e4m3);
  return out;
}

// The gradient of a window goes to its first maximum.
Backward route(const Tensor& argmax, const detail::PoolSizes& sizes) {
  return [argmax, sizes](const Tensor& dy) {
    Tensor dx =
        Tensor::empty({sizes.n, sizes.c, sizes.h, sizes.w}, dy.dtype(), dy.device(), Layout::channels_last);
    detail::run(dx.device(), &detail::Kernels::max_pool_backward, dy, argmax, sizes, dx);
    return std::vector<Tensor>{dx};
  };
}

/// Pools the sums of x in place and appends the argmax of each range of channels. This requires that the
/// value is a monotone function of the sum, the same for a whole channel. Otherwise returns false, and x is
/// partly modified.
bool pool_sums(Accumulator& x, const detail::PoolSizes& sizes, bool with_argmax,
               std::vector<Tensor>& argmax) {
  const auto replace = [&](Tensor& tensor, const Tensor& factor = {}) {
    detail::PoolSizes own = sizes;
    own.c = tensor.dim(1);
    auto pooled = pool(tensor, own, with_argmax, factor);
    tensor = std::move(pooled.values);
    argmax.push_back(std::move(pooled.argmax));
    return true;
  };
  if (auto* product = std::get_if<ProductSums>(&x.value)) return product->axis == 1 && replace(product->sums);
  if (auto* normalized = std::get_if<NormalizedSums>(&x.value))
    return normalized->axis == 1 && replace(normalized->sums, normalized->factor);
  if (auto* sums = std::get_if<PooledSums>(&x.value)) return replace(sums->sums);
  if (auto* averages = std::get_if<Averages>(&x.value)) return replace(averages->values);
  auto* concat = std::get_if<AccumulatorConcat>(&x.value);
  if (concat == nullptr || concat->axis != 1) return false;
  for (auto& part : concat->parts)
    if (!pool_sums(part, sizes, with_argmax, argmax)) return false;
  return true;
}

Variable pool_floats(const Variable& input, const detail::PoolSizes& sizes, Attributes attributes) {
  const auto x = detail::floats(input, kMaxPool);
  auto pooled = pool(x.tensor, sizes, detail::needs_grad({x.variable}));
  return detail::record(kMaxPool, pooled.values, {x.variable}, route(pooled.argmax, sizes),
                        std::move(attributes));
}

/// Returns the largest element of each dilated window along an axis, as the maximum of one slice per tap.
Variable largest_along(const Variable& x, int axis, std::int64_t kernel, std::int64_t stride,
                       std::int64_t dilation) {
  const std::int64_t reach = (kernel - 1) * dilation, outputs = (x.dim(axis) - reach - 1) / stride + 1;
  Variable y;
  for (std::int64_t k = 0; k < kernel; ++k) {
    const std::int64_t begin = k * dilation;
    const Variable part = slice(x, axis, begin, begin + (outputs - 1) * stride + 1, stride);
    y = y.defined() ? maximum(y, part) : part;
  }
  return y;
}

Variable dilated(const Variable& input, const Pool2d& o) {
  Pool2d reaching = o;
  for (std::size_t i = 0; i < 2; ++i) {
    FQ_CHECK(o.dilation[i] >= 1 && o.kernel[i] >= 1, kMaxPool, "kernel {} and dilation {} must be 1 or more",
             o.kernel[i], o.dilation[i]);
    reaching.kernel[i] = (o.kernel[i] - 1) * o.dilation[i] + 1;
    if (o.stride[i] == 0) reaching.stride[i] = o.kernel[i];
  }
  const auto x = detail::floats(input, kMaxPool);
  const auto s = detail::pool_sizes(x.tensor.shape(), reaching, kMaxPool);
  Attributes attributes = detail::traced([&] {
    auto made = detail::pool_attributes(s);
    made[0].second = std::vector<std::int64_t>{o.kernel[0], o.kernel[1]};
    made[4] = {"dilation", std::vector<std::int64_t>{o.dilation[0], o.dilation[1]}};
    return made;
  });
  return detail::composite(kMaxPool, {x.variable}, std::move(attributes), [&] {
    // Pads to exactly the rows that windows read. The numbers are negative, and crop, if floor mode leaves
    // rows unread.
    const std::int64_t bottom = (s.oh - 1) * s.sh + s.kh - s.h - s.ph,
                       right = (s.ow - 1) * s.sw + s.kw - s.w - s.pw;
    const Variable padded = pad(x.variable, {{s.ph, bottom}, {s.pw, right}}, PadMode::constant,
                                -std::numeric_limits<double>::infinity());
    // The maximum over a rectangle is separable: rows first, then columns.
    return largest_along(largest_along(padded, 2, o.kernel[0], s.sh, o.dilation[0]), 3, o.kernel[1], s.sw,
                         o.dilation[1]);
  });
}

}  // namespace

Variable max_pool2d(const Variable& x, const Pool2d& options) {
  FQ_CHECK(x.defined(), kMaxPool, "the input is undefined");
  if (options.dilation != std::array<std::int64_t, 2>{1, 1}) return dilated(x, options);
  const auto sizes = detail::pool_sizes(x.shape(), options, kMaxPool);
  auto attributes = detail::traced([&] { return detail::pool_attributes(sizes); });
  const bool grad = detail::needs_grad({x});
  if (const auto* codes = x.quantized(); codes != nullptr && detail::is_movable(*codes)) {
    auto pooled = pool_codes(codes->codes, sizes, grad);
    return detail::record(kMaxPool, detail::with_codes(*codes, pooled.values), {x},
                          route(pooled.argmax, sizes), std::move(attributes));
  }
  // Pools sums before they are rounded: rounding is monotone, so the result is the same and fewer elements
  // are rounded.
  if (x.accumulator() != nullptr) {
    Accumulator pooled = *x.accumulator();
    std::vector<Tensor> argmax;
    if (pool_sums(pooled, sizes, grad, argmax)) {
      const Tensor window_positions = argmax.size() == 1 ? argmax[0]
                                      : grad             ? detail::join(argmax, 1)
                                                         : Tensor();
      return detail::record(kMaxPool, std::move(pooled), {x}, route(window_positions, sizes),
                            std::move(attributes));
    }
  }
  return pool_floats(x, sizes, std::move(attributes));
}

namespace {

Variable as_image(const Variable& x, std::string_view op) {
  FQ_CHECK(x.defined() && x.rank() == 3, op, "the input is {}: use [N, C, L]",
           x.defined() ? to_string(x.shape()) : "undefined");
  return reshape(x, {x.dim(0), x.dim(1), 1, x.dim(2)});
}

Pool2d with_height(const Pool1d& o) {
  return {.kernel = {1, o.kernel},
          .stride = {1, o.stride},
          .padding = {0, o.padding},
          .count_include_pad = o.count_include_pad,
          .ceil_mode = o.ceil_mode,
          .dilation = {1, o.dilation}};
}

Variable as_sequence(const Variable& y) { return reshape(y, {y.dim(0), y.dim(1), y.dim(3)}); }

}  // namespace

Variable max_pool1d(const Variable& x, const Pool1d& options) {
  return as_sequence(max_pool2d(as_image(x, "max_pool1d"), with_height(options)));
}

Variable avg_pool1d(const Variable& x, const Pool1d& options) {
  return as_sequence(avg_pool2d(as_image(x, "avg_pool1d"), with_height(options)));
}

}  // namespace fq::ops
