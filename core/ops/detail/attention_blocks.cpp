#include "fakequant/core/ops/detail/attention_blocks.h"

#include <algorithm>

#include "fakequant/core/backend/cpu/engine/engine.h"
#include "fakequant/core/backend/cpu/engine/threads.h"
#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/detail/moves.h"
#include "fakequant/core/ops/detail/product.h"

namespace fq::detail {
namespace {

struct Nothing {};

}  // namespace

/// Matrices of the heads of a sample: side by side in rows, or, for scores, contiguous one after another.
struct AttentionSamples::Part {
  Tensor tensor;
  std::int64_t rows, columns;
  bool side_by_side = true;
};

bool AttentionSamples::takes(const AttentionShape& shape, bool causal, Device device, DType dtype) {
  if (!device.is_cpu() || dtype != DType::f32 || !cpu::multiplies_side_by_side()) return false;
  const AttentionRows rows{shape.heads, shape.queries, shape.keys, 0, causal, 1.0, {}};
  return numel(shape.y()) > 0 && numel(shape.q()) > 0 &&
         AttentionBlocks(shape, rows, device).may_be_samples();
}

// S = Q K^T and Y = P V of all heads are one batched product: the engine reads the matrices of the heads at
// their row stride, so no head is copied.
AttentionSamples::AttentionSamples(const AttentionShape& shape, bool causal, double scale)
    : shape_(shape), rows_{shape.heads, shape.queries, shape.keys, 0, causal, scale, {}} {}

void AttentionSamples::multiply(const Part& a, bool transpose_a, const Part& b, bool transpose_b,
                                Part out) const {
  const auto matrix = [&](const Part& x, bool transposed) {
    return cpu::Matrix{x.tensor.raw(),
                       x.tensor.dtype(),
                       transposed ? x.columns : x.rows,
                       transposed ? x.rows : x.columns,
                       transposed,
                       x.side_by_side ? shape_.heads : 1};
  };
  cpu::gemm(matrix(a, transpose_a), matrix(b, transpose_b), out.tensor.mutable_data<float>(), shape_.heads,
            Sharing::by_threads, out.side_by_side ? shape_.heads : 1);
}

Tensor AttentionSamples::weights(std::int64_t sample, const Tensor& q, const Tensor& k) const {
  Tensor p = Tensor::empty({shape_.heads, shape_.queries, shape_.keys}, DType::f32);
  multiply({q.slice(sample, sample + 1), shape_.queries, shape_.width}, false,
           {k.slice(sample, sample + 1), shape_.keys, shape_.width}, true,
           {p, shape_.queries, shape_.keys, false});
  AttentionRows rows = rows_;
  rows.first = sample * shape_.heads * shape_.queries;
  run(p.device(), &Kernels::attention_weights, rows, Tensor(), p);
  return p;
}

Tensor AttentionSamples::forward(const Tensor& q, const Tensor& k, const Tensor& v) const {
  Tensor y = Tensor::empty({shape_.samples, shape_.queries, shape_.heads * shape_.value_width}, DType::f32);
  cpu::parallel_tasks<Nothing>(shape_.samples, [&](Nothing&, std::int64_t i) {
    multiply({weights(i, q, k), shape_.queries, shape_.keys, false}, false,
             {v.slice(i, i + 1), shape_.keys, shape_.value_width}, false,
             {y.slice(i, i + 1), shape_.queries, shape_.value_width});
  });
  return y;
}

std::vector<Tensor> AttentionSamples::backward(const Tensor& dy, const Tensor& q, const Tensor& k,
                                               const Tensor& v, DType factors) const {
  const auto empty = [](const Tensor& x) { return Tensor::empty(x.shape(), DType::f32); };
  const std::vector<Tensor> out{empty(q), empty(k), empty(v)};
  cpu::parallel_tasks<Nothing>(shape_.samples, [&](Nothing&, std::int64_t i) {
    const auto part = [i](const Tensor& x, std::int64_t rows, std::int64_t columns) {
      return Part{x.slice(i, i + 1), rows, columns};
    };
    const auto factor = [&](const Tensor& x, std::int64_t rows, std::int64_t columns) {
      return Part{x.slice(i, i + 1).to(factors), rows, columns};
    };
    const auto scores = [&](const Tensor& x) { return Part{x, shape_.queries, shape_.keys, false}; };
    // Recomputes P with the bits of forward. Then dV = P^T dY, dP = dY V^T, dS = scale * P (dP - rowsum(dP
    // P)), dQ = dS K and dK = dS^T Q.
    const Tensor p = weights(i, q, k);
    const Part rows = factor(dy, shape_.queries, shape_.value_width);
    multiply(scores(p.to(factors)), true, rows, false, part(out[2], shape_.keys, shape_.value_width));
    Tensor dp = empty(p);
    multiply(rows, false, factor(v, shape_.keys, shape_.value_width), true, scores(dp));
    run(dp.device(), &Kernels::attention_weights_backward, p, rows_.scale, dp);
    const Part slopes = scores(dp.to(factors));
    multiply(slopes, false, factor(k, shape_.keys, shape_.width), false,
             part(out[0], shape_.queries, shape_.width));
    multiply(slopes, true, factor(q, shape_.queries, shape_.width), false,
             part(out[1], shape_.keys, shape_.width));
  });
  return out;
}

namespace {

constexpr std::int64_t kScores = std::int64_t{1} << 20;     // per block: 4 MB of f32, which fits into caches
constexpr std::int64_t kOwnScores = kScores / 4;            // per block of one thread
constexpr std::int64_t kGpuScores = std::int64_t{1} << 24;  // per block: large enough for all multiprocessors
constexpr std::int64_t kManyGroups = 16;
constexpr std::int64_t kKeysTogether = 128;
constexpr std::int64_t kKeysOfSum = 256;
constexpr std::int64_t kCausalRows = 128;  // per block: fewer rows skip more keys but multiply more slowly

/// Writes a b to out [groups, rows of a, columns], the memory that `out` is a view of. With `apart` the
/// calling thread computes the product alone.
void product(bool apart, const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b, Tensor& out) {
  const std::int64_t k = a.dim(transpose_a ? 1 : 2);
  multiply({a, out.dim(1), k, transpose_a}, {b, k, out.dim(2), transpose_b}, out, out.dim(0),
           apart ? Sharing::by_threads : Sharing::by_shape);
}

Tensor empty_tensor(Shape shape, const Tensor& like) {
  return Tensor::empty(std::move(shape), like.dtype(), like.device());
}

/// Computes out [groups, rows, columns] = a [groups, rows, keys] b [groups, keys, columns] as sums over few
/// keys each. Each of these sums is computed in one go, and zeros at the end of a row then change no bit.
void product_over_keys(bool apart, const Tensor& a, const Tensor& b, Tensor& out) {
  const std::int64_t keys = b.dim(1);
  if (keys <= kKeysOfSum) return product(apart, a, false, b, false, out);
  for (std::int64_t j = 0; j < keys; j += kKeysOfSum) {
    const std::int64_t end = std::min(keys, j + kKeysOfSum);
    Tensor more = j == 0 ? out : empty_tensor(out.shape(), out);
    product(apart, cut(a, 2, j, end), false, cut(b, 1, j, end), false, more);
    if (j > 0) run(out.device(), &Kernels::combine, out, more, Add{}, out);
  }
}

}  // namespace

// The block sizes depend on the shape and the kind of device only, never on the number of threads: the order
// of all sums follows from them.
AttentionBlocks::AttentionBlocks(const AttentionShape& shape, const AttentionRows& rows, Device device,
                                 bool all_keys)
    : shape_(shape),
      rows_(rows),
      group_rows_(shape.heads / shape.kv_heads * shape.queries),
      in_heads_(device.is_cpu() && rows.causal && shape.queries > kCausalRows),
      apart_(in_heads_ || (device.is_cpu() && shape.samples * shape.kv_heads >= kManyGroups)),
      all_keys_(all_keys) {
  const std::int64_t scores = std::max<std::int64_t>(group_rows_ * shape.keys, 1),
                     of_block = device.is_cpu() ? kScores : kGpuScores, most = apart_ ? kOwnScores : of_block;
  block_groups_ = std::max<std::int64_t>(most / scores, 1);
  if (apart_)  // at least kManyGroups blocks: enough for all threads
    block_groups_ = in_heads_ ? 1 : std::min(block_groups_, shape.samples * shape.kv_heads / kManyGroups);
  block_rows_ = scores <= most ? group_rows_ : std::max<std::int64_t>(most / shape.keys, 16);
  if (in_heads_) block_rows_ = std::min(block_rows_, kCausalRows);
}

bool AttentionBlocks::may_be_samples() const noexcept {
  return apart_ && !in_heads_ && shape_.heads == shape_.kv_heads && shape_.samples >= kManyGroups &&
         shape_.heads * group_rows_ * shape_.keys <= kOwnScores;
}

/// Returns the number of rows of the block that begins at `row`.
std::int64_t AttentionBlocks::block_row_count(std::int64_t row) const {
  const std::int64_t end = in_heads_ ? (row / shape_.queries + 1) * shape_.queries : group_rows_;
  return std::min(block_rows_, end - row);
}

/// Returns the number of keys that rows before `end` read: the keys they see, rounded up, because products
/// sum their last keys in another order than the rest.
std::int64_t AttentionBlocks::keys_of_rows(std::int64_t end) const {
  if (!in_heads_ || all_keys_) return shape_.keys;
  // See AttentionRows::visible, for the last row before `end`.
  const std::int64_t seen = shape_.keys - shape_.queries + (end - 1) % shape_.queries + 1;
  return std::clamp<std::int64_t>((seen + kKeysTogether - 1) / kKeysTogether * kKeysTogether, 0, shape_.keys);
}

template <class F>
void AttentionBlocks::each(F&& f) const {
  const std::int64_t groups = shape_.samples * shape_.kv_heads;
  const auto visit_blocks = [&](std::int64_t g) {
    for (std::int64_t r = 0, rows = 0; r < group_rows_; r += rows) {
      rows = block_row_count(r);
      f(Block{g, std::min(block_groups_, groups - g), r, rows, keys_of_rows(r + rows)});
    }
  };
  struct Nothing {};
  if (apart_)
    return cpu::parallel_tasks<Nothing>((groups + block_groups_ - 1) / block_groups_,
                                        [&](Nothing&, std::int64_t i) { visit_blocks(i * block_groups_); });
  for (std::int64_t g = 0; g < groups; g += block_groups_) visit_blocks(g);
}

Tensor AttentionBlocks::block_queries(const Tensor& x, const Block& block) const {
  const std::int64_t first = block.group * group_rows_ + block.row, width = x.dim(3);
  return x.reshape({x.numel() / std::max<std::int64_t>(width, 1), width})
      .slice(first, first + block.groups * block.rows)
      .reshape({block.groups, block.rows, width});
}

Tensor AttentionBlocks::block_keys(const Tensor& x, const Block& block) const {
  const Tensor all = x.reshape({shape_.samples * shape_.kv_heads, shape_.keys, x.dim(3)})
                         .slice(block.group, block.group + block.groups);
  if (block.keys == shape_.keys) return all;
  return all.reshape({shape_.keys, x.dim(3)}).slice(0, block.keys).reshape({1, block.keys, x.dim(3)});
}

Tensor AttentionBlocks::weights(const Tensor& q, const Tensor& k, const Tensor& mask,
                                const Block& block) const {
  Tensor p = empty_tensor({block.groups, block.rows, block.keys}, q);
  if (block.keys == 0) return p;
  product(apart_, block_queries(q, block), false, block_keys(k, block), true, p);
  const std::int64_t first = block.group * group_rows_ + block.row;
  // `visible` depends on keys - queries, which stays the same, and on the position of the query in its head.
  // Rows are therefore numbered again for heads of the reduced number of queries.
  AttentionRows rows = rows_;  // without the last keys, and the queries that see only these
  rows.keys = block.keys;
  rows.queries -= shape_.keys - block.keys;
  rows.first = first / shape_.queries * rows.queries + first % shape_.queries;
  run(p.device(), &Kernels::attention_weights, rows, mask, p);
  return p;
}

void AttentionBlocks::times_keys(const Tensor& scores, const Tensor& keys, Tensor& out) const {
  in_heads_ ? product_over_keys(apart_, scores, keys, out) : product(apart_, scores, false, keys, false, out);
}

Tensor AttentionBlocks::forward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask) const {
  Tensor y = empty_tensor(shape_.y(), q);
  if (q.device().is_meta() || y.numel() == 0) return y;
  each([&](const Block& block) {
    Tensor part = block_queries(y, block);
    times_keys(weights(q, k, mask, block), block_keys(v, block), part);
  });
  return y;
}

std::vector<Tensor> AttentionBlocks::backward(const Tensor& dy, const Tensor& q, const Tensor& k,
                                              const Tensor& v, const Tensor& mask, DType factors) const {
  Tensor dq = empty_tensor(shape_.q(), q), dk = empty_tensor(shape_.k(), q), dv = empty_tensor(shape_.v(), q);
  std::vector<Tensor> out{dq, dk, dv, {}};
  if (q.device().is_meta()) return out;
  if (group_rows_ == 0) {  // no query reads the keys
    run(dk.device(), &Kernels::fill, dk, 0.0);
    run(dv.device(), &Kernels::fill, dv, 0.0);
    return out;
  }
  // The first block of a group overwrites only the keys that it reads, and later blocks add to the rest.
  if (in_heads_) {
    run(dk.device(), &Kernels::fill, dk, 0.0);
    run(dv.device(), &Kernels::fill, dv, 0.0);
  }
  const Tensor a = q.to(factors), b = k.to(factors), c = v.to(factors), gradient = dy.to(factors);
  each([&](const Block& block) {
    const Tensor p = weights(q, k, mask, block), rows = block_queries(gradient, block);
    Tensor dp = empty_tensor(p.shape(), p), part = block_queries(dq, block);
    // dk and dv of a group are sums over its blocks of query rows. These blocks run one after another, so the
    // sums have the same bits for any number of threads.
    const auto accumulate_product = [&](Tensor& sum, const Tensor& left, const Tensor& right) {
      Tensor own = block_keys(sum, block);
      if (block.row == 0 || own.numel() == 0) return product(apart_, left, true, right, false, own);
      Tensor more = empty_tensor(own.shape(), own);
      product(apart_, left, true, right, false, more);
      run(own.device(), &Kernels::combine, own, more, Add{}, own);
    };
    accumulate_product(dv, p.to(factors), rows);
    product(apart_, rows, false, block_keys(c, block), true, dp);
    run(dp.device(), &Kernels::attention_weights_backward, p, rows_.scale, dp);
    const Tensor scores = dp.to(factors);
    times_keys(scores, block_keys(b, block), part);
    accumulate_product(dk, scores, block_queries(a, block));
  });
  return out;
}

}  // namespace fq::detail
