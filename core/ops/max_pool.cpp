#include <limits>

#include "fakequant/core/detail/moves.h"
#include "fakequant/core/ops/detail/composite.h"
#include "fakequant/core/ops/detail/pool_sizes.h"
#include "fakequant/core/ops/elementwise.h"
#include "fakequant/core/ops/shape.h"

namespace fq::ops {
namespace {

constexpr std::string_view kMaxPool = "max_pool2d";

struct Pooled {
  Tensor values, argmax;
};

/// Max pooling of a plain tensor of any code or float type; argmax only when asked for. `factor` of sums: the
/// channels whose value falls where the sum rises pool the smallest sum.
Pooled pool(const Tensor& input, const detail::PoolSizes& sizes, bool with_argmax,
            const Tensor& factor = {}) {
  const Shape shape = detail::pooled_shape(sizes);
  Pooled out{Tensor::empty(shape, input.dtype(), input.device(), Layout::channels_last), {}};
  const DType places = sizes.window() <= detail::byte_places ? DType::u8 : DType::i32;
  if (with_argmax) out.argmax = Tensor::empty(shape, places, input.device(), Layout::channels_last);
  detail::run(input.device(), &detail::Kernels::max_pool, input.to(Layout::channels_last), sizes, out.values,
              with_argmax ? &out.argmax : nullptr, factor);
  return out;
}

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

Backward route(const Tensor& argmax, const detail::PoolSizes& sizes) {
  return [argmax, sizes](const Tensor& dy) {
    Tensor dx =
        Tensor::empty({sizes.n, sizes.c, sizes.h, sizes.w}, dy.dtype(), dy.device(), Layout::channels_last);
    detail::run(dx.device(), &detail::Kernels::max_pool_backward, dy, argmax, sizes, dx);
    return std::vector<Tensor>{dx};
  };
}

/// Pools the sums of x in place and appends the argmax of each range of channels. Its value is a monotone
/// function of its sum, the same one for a whole channel. False when that is not so: then x is left half
/// done.
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

/// The largest of the elements of a dilated window along an axis: of slices, one for each of its places.
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
    const std::int64_t bottom = (s.oh - 1) * s.sh + s.kh - s.h - s.ph,
                       right = (s.ow - 1) * s.sw + s.kw - s.w - s.pw;
    const Variable padded = pad(x.variable, {{s.ph, bottom}, {s.pw, right}}, PadMode::constant,
                                -std::numeric_limits<double>::infinity());
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
  if (x.accumulator() != nullptr) {
    Accumulator pooled = *x.accumulator();
    std::vector<Tensor> argmax;
    if (pool_sums(pooled, sizes, grad, argmax)) {
      const Tensor places = argmax.size() == 1 ? argmax[0] : grad ? detail::join(argmax, 1) : Tensor();
      return detail::record(kMaxPool, std::move(pooled), {x}, route(places, sizes), std::move(attributes));
    }
  }
  return pool_floats(x, sizes, std::move(attributes));
}

}  // namespace fq::ops
