#include "fakequant/core/ops/detail/attention_blocks.h"

#include <algorithm>

#include "fakequant/core/backend/cpu/engine/threads.h"
#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/ops/detail/products.h"

namespace fq::detail {
namespace {

constexpr std::int64_t kScores = std::int64_t{1} << 20;  // of a block: 4 MB of f32, which caches hold
constexpr std::int64_t kOwnScores = kScores / 4;         // of a block of one thread
constexpr std::int64_t kManyGroups = 16;

/// out [groups, a's rows, columns] = a b, into the memory that `out` is a view of; a product `apart` has a
/// thread to itself.
void product(bool apart, const Tensor& a, bool a_turned, const Tensor& b, bool b_turned, Tensor& out) {
  const std::int64_t k = a.dim(a_turned ? 1 : 2);
  multiply({a, out.dim(1), k, a_turned}, {b, k, out.dim(2), b_turned}, out, out.dim(0),
           apart ? Sharing::by_threads : Sharing::by_shape);
}

Tensor empty_of(Shape shape, const Tensor& like) {
  return Tensor::empty(std::move(shape), like.dtype(), like.device());
}

}  // namespace

AttentionBlocks::AttentionBlocks(const AttentionShape& shape, const AttentionRows& rows, Device device)
    : shape_(shape),
      rows_(rows),
      group_rows_(shape.heads / shape.kv_heads * shape.queries),
      apart_(device.is_cpu() && shape.samples * shape.kv_heads >= kManyGroups) {
  const std::int64_t scores = std::max<std::int64_t>(group_rows_ * shape.keys, 1),
                     most = apart_ ? kOwnScores : kScores;
  block_groups_ = apart_ ? 1 : std::max<std::int64_t>(most / scores, 1);
  block_rows_ = scores <= most ? group_rows_ : std::max<std::int64_t>(most / shape.keys, 16);
}

template <class F>
void AttentionBlocks::each(F&& f) const {
  const std::int64_t groups = shape_.samples * shape_.kv_heads;
  const auto blocks_from = [&](std::int64_t g) {
    for (std::int64_t r = 0; r < group_rows_; r += block_rows_)
      f(Block{g, std::min(block_groups_, groups - g), r, std::min(block_rows_, group_rows_ - r)});
  };
  struct Nothing {};
  if (apart_) return cpu::parallel_tasks<Nothing>(groups, [&](Nothing&, std::int64_t g) { blocks_from(g); });
  for (std::int64_t g = 0; g < groups; g += block_groups_) blocks_from(g);
}

Tensor AttentionBlocks::queries_of(const Tensor& x, const Block& block) const {
  const std::int64_t first = block.group * group_rows_ + block.row, width = x.dim(3);
  return x.reshape({x.numel() / std::max<std::int64_t>(width, 1), width})
      .slice(first, first + block.groups * block.rows)
      .reshape({block.groups, block.rows, width});
}

Tensor AttentionBlocks::keys_of(const Tensor& x, const Block& block) const {
  return x.reshape({shape_.samples * shape_.kv_heads, shape_.keys, x.dim(3)})
      .slice(block.group, block.group + block.groups);
}

Tensor AttentionBlocks::weights(const Tensor& q, const Tensor& k, const Tensor& mask,
                                const Block& block) const {
  Tensor p = empty_of({block.groups, block.rows, shape_.keys}, q);
  product(apart_, queries_of(q, block), false, keys_of(k, block), true, p);
  AttentionRows rows = rows_;
  rows.first = block.group * group_rows_ + block.row;
  run(p.device(), &Kernels::attention_weights, rows, mask, p);
  return p;
}

Tensor AttentionBlocks::forward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask) const {
  Tensor y = empty_of(shape_.y(), q);
  if (q.device().is_meta() || y.numel() == 0) return y;
  each([&](const Block& block) {
    Tensor part = queries_of(y, block);
    product(apart_, weights(q, k, mask, block), false, keys_of(v, block), false, part);
  });
  return y;
}

std::vector<Tensor> AttentionBlocks::backward(const Tensor& dy, const Tensor& q, const Tensor& k,
                                              const Tensor& v, const Tensor& mask, DType factors) const {
  Tensor dq = empty_of(shape_.q(), q), dk = empty_of(shape_.k(), q), dv = empty_of(shape_.v(), q);
  std::vector<Tensor> out{dq, dk, dv, {}};
  if (q.device().is_meta()) return out;
  if (group_rows_ == 0) {  // no query has read the keys
    run(dk.device(), &Kernels::fill, dk, 0.0);
    run(dv.device(), &Kernels::fill, dv, 0.0);
    return out;
  }
  const Tensor a = q.to(factors), b = k.to(factors), c = v.to(factors), gradient = dy.to(factors);
  each([&](const Block& block) {
    const Tensor p = weights(q, k, mask, block), rows = queries_of(gradient, block);
    Tensor dp = empty_of(p.shape(), p), part = queries_of(dq, block);
    const auto add_to = [&](Tensor& sum, const Tensor& left, const Tensor& right) {
      Tensor own = keys_of(sum, block);
      if (block.row == 0) return product(apart_, left, true, right, false, own);
      Tensor more = empty_of(own.shape(), own);
      product(apart_, left, true, right, false, more);
      run(own.device(), &Kernels::combine, own, more, Add{}, own);
    };
    add_to(dv, p.to(factors), rows);
    product(apart_, rows, false, keys_of(c, block), true, dp);
    run(dp.device(), &Kernels::attention_weights_backward, p, rows_.scale, dp);
    const Tensor scores = dp.to(factors);
    product(apart_, scores, false, keys_of(b, block), false, part);
    add_to(dk, scores, queries_of(a, block));
  });
  return out;
}

}  // namespace fq::detail
