#include "fakequant/core/ops/detail/tiled_attention.h"

#include <utility>

#include "fakequant/core/profile.h"

namespace fq::detail {

bool TiledAttention::takes(const AttentionShape& sizes, Device device, DType dtype) {
  return device.is_cuda() && dtype == DType::f32 && sizes.fits_tiles();
}

/// `sizes` are [samples, heads, rows, channels].
HeadRows TiledAttention::heads(const Tensor& x, const Shape& sizes) const {
  const std::int64_t count = sizes[1], length = sizes[2], width = sizes[3], all = count * length * width;
  if (side_by_side) return {x, all, width, count * width};
  return {x, all, length * width, width};
}

AttentionInputs TiledAttention::arguments(const Tensor& q, const Tensor& k, const Tensor& v) const {
  return {shape, rows, heads(q, shape.q()), heads(k, shape.k()), heads(v, shape.v()), mask, dropout};
}

std::vector<Tensor> TiledAttention::backward(const AttentionInputs& inputs, const Tensor& y,
                                             const Tensor& log_sums, PendingGradient dy) const {
  const auto like = [&](const HeadRows& x, const Shape& sizes) {
    return heads(Tensor::empty(x.tensor.shape(), DType::f32, x.tensor.device()), sizes);
  };
  HeadRows dq = like(inputs.q, shape.q()), dk = like(inputs.k, shape.k()), dv = like(inputs.v, shape.v());
  if (dy.scale || dy.activation || dy.values.storage().use_count() != 1) dy.evaluate();
  HeadRows outputs = heads(dy.values, shape.y());
  run(y.device(), &Kernels::attention_backward, inputs, heads(y, shape.y()), log_sums, outputs, dy.mask,
      factors == DType::f32, dq, dk, dv);
  return {dq.tensor, dk.tensor, dv.tensor, {}};
}

Variable TiledAttention::apply(std::string_view op, const Floats& q, const Floats& k, const Floats& v,
                               const std::vector<Variable>& inputs, Attributes attributes) const {
  constexpr auto row_major = Layout::row_major;
  const Device device = q.tensor.device();
  const Shape heads_shape = shape.y();
  const Shape rows_shape{shape.samples, shape.queries, shape.heads * shape.value_width};
  HeadRows y = heads(Tensor::empty(side_by_side ? rows_shape : heads_shape, DType::f32, device), heads_shape);
  Tensor log_sums = Tensor::empty({shape.samples, shape.heads, shape.queries}, DType::f32, device);
  run(device, &Kernels::attention,
      arguments(q.tensor.to(row_major), k.tensor.to(row_major), v.tensor.to(row_major)), y, log_sums);
  const auto gradients = [own = *this, op, a = SavedFloats(q.variable), b = SavedFloats(k.variable),
                          c = SavedFloats(v.variable), output = Saved(y.tensor), logs = Saved(log_sums),
                          count = inputs.size()](BackwardCall& call) {
    const ProfileScope profile(op, "backward");
    const auto parts =
        own.backward(own.arguments(a.get().to(row_major), b.get().to(row_major), c.get().to(row_major)),
                     output.get(), logs.get(), std::move(call.dy));
    std::vector<PendingGradient> out(parts.begin(), parts.end());
    out.resize(count);
    return out;
  };
  return record(op, y.tensor, inputs, gradients, std::move(attributes));
}

}  // namespace fq::detail
