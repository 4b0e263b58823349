#include "fakequant/core/ops/detail/tiled_attention.h"

#include <utility>

#include "fakequant/core/profile.h"

namespace fq::detail {

bool TiledAttention::takes(const AttentionShape& sizes, Device device, DType dtype) {
  return device.is_cuda() && dtype == DType::f32 && sizes.fits_tiles();
}

/// `sizes` are [samples, heads, rows, channels], `first` is the position of the first head in a row. The
/// tensor of the result begins there. Its size is the number of elements that kernels read or write.
HeadRows TiledAttention::heads(const Tensor& x, const Shape& sizes, std::int64_t first) const {
  const std::int64_t count = sizes[1], length = sizes[2], width = sizes[3];
  if (order == HeadOrder::heads) return {x, count * length * width, length * width, width};
  const std::int64_t row = x.dim(-1);
  return {x.reshape({x.numel()}).slice(first, first + numel(sizes)), length * row, width, row};
}

AttentionInputs TiledAttention::arguments(const Tensor& q, const Tensor& k, const Tensor& v) const {
  const bool packed = order == HeadOrder::packed;
  const std::int64_t first_k = packed ? shape.heads * shape.width : 0,
                     first_v = packed ? first_k + shape.kv_heads * shape.width : 0;
  return {shape, rows,   heads(q, shape.q()), heads(k, shape.k(), first_k), heads(v, shape.v(), first_v),
          mask,  dropout};
}

std::vector<Tensor> TiledAttention::backward(const Tensor& q, const Tensor& k, const Tensor& v,
                                             const Tensor& y, const Tensor& log_sums,
                                             PendingGradient dy) const {
  const auto empty_like = [](const Tensor& x) { return Tensor::empty(x.shape(), DType::f32, x.device()); };
  const bool packed = order == HeadOrder::packed;
  const Tensor dq = empty_like(q), dk = packed ? dq : empty_like(k), dv = packed ? dq : empty_like(v);
  AttentionInputs gradients = arguments(dq, dk, dv);
  if (dy.scale || dy.activation || dy.values.storage().use_count() != 1) dy.evaluate();
  HeadRows outputs = heads(dy.values, shape.y());
  run(y.device(), &Kernels::attention_backward, arguments(q, k, v), heads(y, shape.y()), log_sums, outputs,
      dy.mask, factors == DType::f32, gradients.q, gradients.k, gradients.v);
  return packed ? std::vector{dq} : std::vector{dq, dk, dv, Tensor()};
}

Variable TiledAttention::apply(std::string_view op, const Floats& q, const Floats& k, const Floats& v,
                               const std::vector<Variable>& inputs, Attributes attributes) const {
  constexpr auto row_major = Layout::row_major;
  const Device device = q.tensor.device();
  const Shape rows_shape{shape.samples, shape.queries, shape.heads * shape.value_width};
  const Tensor y = Tensor::empty(order == HeadOrder::heads ? shape.y() : rows_shape, DType::f32, device);
  HeadRows to = heads(y, shape.y());
  Tensor log_sums = Tensor::empty({shape.samples, shape.heads, shape.queries}, DType::f32, device);
  run(device, &Kernels::attention,
      arguments(q.tensor.to(row_major), k.tensor.to(row_major), v.tensor.to(row_major)), to, log_sums);
  const auto gradients = [own = *this, op, a = SavedFloats(q.variable), b = SavedFloats(k.variable),
                          c = SavedFloats(v.variable), output = Saved(y), logs = Saved(log_sums),
                          count = inputs.size()](BackwardCall& call) {
    const ProfileScope profile(op, "backward");
    const auto parts = own.backward(a.get().to(row_major), b.get().to(row_major), c.get().to(row_major),
                                    output.get(), logs.get(), std::move(call.dy));
    std::vector<PendingGradient> out(parts.begin(), parts.end());
    out.resize(count);
    return out;
  };
  return record(op, y, inputs, gradients, std::move(attributes));
}

}  // namespace fq::detail
