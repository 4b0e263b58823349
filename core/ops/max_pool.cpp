#include "fakequant/core/detail/join.h"
#include "fakequant/core/ops/detail/pool_sizes.h"

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

}  // namespace

Variable max_pool2d(const Variable& x, const Pool2d& options) {
  FQ_CHECK(x.defined(), kMaxPool, "the input is undefined");
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
