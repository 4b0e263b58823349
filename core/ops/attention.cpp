#include "fakequant/core/ops/attention.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "fakequant/core/ops/activation.h"
#include "fakequant/core/ops/detail/attention_blocks.h"
#include "fakequant/core/ops/detail/constant_cache.h"
#include "fakequant/core/ops/detail/operator.h"
#include "fakequant/core/ops/detail/product.h"
#include "fakequant/core/ops/detail/tiled_attention.h"
#include "fakequant/core/ops/elementwise.h"
#include "fakequant/core/ops/loss.h"
#include "fakequant/core/ops/shape.h"
#include "fakequant/core/profile.h"
#include "fakequant/core/random.h"

namespace fq::ops {
namespace {

constexpr std::string_view kAttention = "scaled_dot_product_attention", kWeights = "attention_weights";

detail::AttentionShape attention_shape(const Tensor& q, const Tensor& k, const Tensor& v) {
  const auto text = [&] {
    return fmt::format("q is {}, k {}, v {}", to_string(q.shape()), to_string(k.shape()),
                       to_string(v.shape()));
  };
  FQ_CHECK(q.rank() == 4 && k.rank() == 4 && v.rank() == 4, kAttention,
           "{}: use [N, H, L, D], [N, K, S, D] and [N, K, S, E]", text());
  FQ_CHECK(q.dim(0) == k.dim(0) && q.dim(0) == v.dim(0) && q.dim(3) == k.dim(3), kAttention,
           "{}: the number of samples, and the last axis of q and k, must agree", text());
  FQ_CHECK(k.dim(1) == v.dim(1) && k.dim(2) == v.dim(2), kAttention,
           "{}: k and v must have equal numbers of heads and keys", text());
  FQ_CHECK(
      k.dim(1) > 0 && q.dim(1) % k.dim(1) == 0, kAttention,
      "{}: {} heads of queries cannot share {} heads of keys; the first must be a multiple of the second",
      text(), q.dim(1), k.dim(1));
  return {q.dim(0), q.dim(1), k.dim(1), q.dim(2), k.dim(2), q.dim(3), v.dim(3)};
}

// Returns a scalar: added to a score, it gives probability 0.
Variable negative_infinity(const Tensor& like) {
  return Variable(Tensor::full({}, -std::numeric_limits<double>::infinity(), like.dtype(), like.device()));
}

/// Returns the floats to add to the scores, or an undefined tensor.
Tensor added_mask(const Variable& mask, const Tensor& like) {
  if (!mask.defined()) return {};
  FQ_CHECK(!mask.requires_grad(), kAttention,
           "the mask requires a gradient: add it to ops::matmul's scores before ops::softmax, or detach it");
  const Tensor given = mask.tensor().to(Layout::row_major);
  FQ_CHECK((given.dtype() == DType::u8 || given.dtype() == like.dtype()) && given.device() == like.device(),
           kAttention, "the mask is {}, q {}: use u8 or q's dtype on its device", given.describe(),
           like.describe());
  // u8 marks the visible keys, as in PyTorch's bool masks.
  if (given.dtype() != DType::u8) return given;
  const Variable zero(Tensor::full({}, 0.0, like.dtype(), like.device()));
  return where(Variable(given.to(like.dtype())), zero, negative_infinity(like)).tensor();
}

struct CausalKey {
  std::int64_t queries, keys;
  DType dtype;
  bool operator==(const CausalKey&) const = default;
};

/// Returns a mask with 0 where a query sees a key, else -infinity.
Tensor causal_mask(std::int64_t queries, std::int64_t keys, const Tensor& like) {
  if (like.device().is_meta()) return Tensor::empty({queries, keys}, like.dtype(), like.device());
  // Never destroyed: tensors of a device may not outlive its driver.
  static auto& cache = *new detail::ConstantCache<CausalKey>;
  return cache.get({queries, keys, like.dtype()}, like.device(), [&] {
    Tensor mask = Tensor::zeros({queries, keys}, DType::f64);
    auto* to = mask.mutable_data<double>();
    for (std::int64_t i = 0; i < queries; ++i)
      for (std::int64_t j = std::max<std::int64_t>(i + keys - queries + 1, 0); j < keys; ++j)
        to[i * keys + j] = -std::numeric_limits<double>::infinity();
    return mask.to(like.dtype());
  });
}

// Checks that the mask broadcasts against the scores [N, H, L, S] by NumPy's rule. Returns its strides, with
// 0 along broadcast axes, so that a mask is never expanded in memory.
std::array<std::int64_t, 4> mask_strides(const Tensor& mask, const detail::AttentionShape& s) {
  std::array<std::int64_t, 4> out{};
  if (!mask.defined()) return out;
  const Shape scores_shape{s.samples, s.heads, s.queries, s.keys};
  FQ_CHECK(mask.rank() <= 4, kAttention, "the mask is {}: it has at most the axes of {}", mask.describe(),
           to_string(scores_shape));
  std::int64_t stride = 1;
  for (int axis = 3, own = mask.rank() - 1; own >= 0; --axis, --own) {
    const auto size = mask.dim(own);
    FQ_CHECK(size == 1 || size == scores_shape[static_cast<std::size_t>(axis)], kAttention,
             "the mask is {}, the scores are {}: each size must be 1 or the same", mask.describe(),
             to_string(scores_shape));
    out[static_cast<std::size_t>(axis)] = size == 1 ? 0 : stride;
    stride *= size;
  }
  return out;
}

/// Returns whether BackwardType::bf16 rounds the gradients of x.
bool rounds(const Variable& x) {
  return backward_type() == BackwardType::bf16 && (detail::recompute_function(x) || detail::is_of_codes(x));
}

/// Returns the dtype of the factors in backward.
DType backward_factor_dtype(const detail::Floats& q, const detail::Floats& k, const detail::Floats& v) {
  const bool by_codes = rounds(q.variable) && rounds(k.variable) && rounds(v.variable);
  return by_codes ? detail::code_factor_dtype(q.tensor.device()) : q.tensor.dtype();
}

double attention_scale(const AttentionOptions& options, const detail::AttentionShape& shape) {
  return options.scale.value_or(shape.width == 0 ? 1.0 : 1.0 / std::sqrt(static_cast<double>(shape.width)));
}

/// Checked arguments of attention.
struct Arguments {
  detail::Floats q, k, v;
  detail::AttentionShape shape;
  Tensor added;
  detail::AttentionRows scores;

  Arguments(const Variable& queries, const Variable& keys, const Variable& values,
            const AttentionOptions& options, const Variable& mask)
      : q(detail::floats(queries, kAttention)),
        k(detail::matching_floats(keys, q.tensor, kAttention)),
        v(detail::matching_floats(values, q.tensor, kAttention)),
        shape(attention_shape(q.tensor, k.tensor, v.tensor)),
        added(added_mask(mask, q.tensor)),
        scores{shape.heads,
               shape.queries,
               shape.keys,
               0,
               options.causal,
               attention_scale(options, shape),
               mask_strides(added, shape)} {}

  [[nodiscard]] bool fits_tiles() const {
    return detail::TiledAttention::takes(shape, q.tensor.device(), q.tensor.dtype());
  }
  [[nodiscard]] detail::TiledAttention tiled() const {
    return {shape, scores, detail::HeadOrder::heads, added, backward_factor_dtype(q, k, v)};
  }
  [[nodiscard]] std::vector<Variable> inputs(const Variable& mask) const {
    return {q.variable, k.variable, v.variable, mask};
  }
};

/// Rearranges [N, L, heads * size] to [N, heads, L, size].
Variable split_heads(const Variable& x, std::int64_t heads) {
  return transpose(reshape(x, {x.dim(0), x.dim(1), heads, x.dim(2) / heads}), {0, 2, 1, 3});
}

}  // namespace

Variable scaled_dot_product_attention(const Variable& queries, const Variable& keys, const Variable& values,
                                      const AttentionOptions& options, const Variable& mask) {
  const ProfileScope profile(kAttention, "forward");
  const Arguments own(queries, keys, values, options, mask);
  const auto attributes = [&] { return Attributes{{"causal", options.causal}, {"scale", own.scores.scale}}; };
  if (own.fits_tiles())
    return own.tiled().apply(kAttention, own.q, own.k, own.v, own.inputs(mask), detail::traced(attributes));
  const auto& [q, k, v, shape, added, scores] = own;
  const DType factors = backward_factor_dtype(q, k, v);
  const detail::AttentionBlocks blocks(shape, scores, q.tensor.device());
  const Tensor a = q.tensor.to(Layout::row_major), b = k.tensor.to(Layout::row_major),
               c = v.tensor.to(Layout::row_major);
  Tensor y = blocks.forward(a, b, c, added);
  const auto backward = [blocks, factors, q = detail::SavedFloats(q.variable),
                         k = detail::SavedFloats(k.variable), v = detail::SavedFloats(v.variable),
                         mask = detail::Saved(added)](const Tensor& dy) {
    const ProfileScope gradients(kAttention, "backward");
    constexpr auto rows = Layout::row_major;
    return blocks.backward(dy.to(rows), q.get().to(rows), k.get().to(rows), v.get().to(rows), mask.get(),
                           factors);
  };
  return detail::record(kAttention, std::move(y), own.inputs(mask), backward, detail::traced(attributes));
}

Variable attention_weights(const Variable& input, const AttentionOptions& options, const Variable& mask) {
  const auto scores = detail::floats(input, kWeights);
  FQ_CHECK(scores.tensor.rank() == 4, kWeights, "the scores are {}: use [N, H, L, S]",
           to_string(scores.tensor.shape()));
  const Shape& sizes = scores.tensor.shape();
  const double factor = options.scale.value_or(1.0);
  Attributes attributes = detail::traced([&] {
    return Attributes{{"causal", options.causal}, {"scale", factor}};
  });
  return detail::composite(kWeights, {scores.variable, mask}, std::move(attributes), [&] {
    const Tensor added = added_mask(mask, scores.tensor);
    // Only checks the shape: `add` below broadcasts.
    (void)mask_strides(added, {sizes[0], sizes[1], sizes[1], sizes[2], sizes[3], 0, 0});
    Variable seen = scale(scores.variable, factor);
    if (options.causal) seen = add(seen, Variable(causal_mask(sizes[2], sizes[3], scores.tensor)));
    if (added.defined()) seen = add(seen, Variable(added));
    const bool sees_all_a_key = !added.defined() && (!options.causal || sizes[2] <= sizes[3]);
    if (sees_all_a_key || sizes[3] == 0) return softmax(seen);
    // The softmax of a row of -infinity is NaN. The inner `where` replaces the row by zeros, the outer one
    // replaces its probabilities by 0. Both also stop the gradient.
    const Variable blind = equal(max(seen.detach(), {-1}, true), negative_infinity(scores.tensor));
    const Variable zero(Tensor::full({}, 0.0, scores.tensor.dtype(), scores.tensor.device()));
    return where(blind, zero, softmax(where(blind, zero, seen)));
  });
}

}  // namespace fq::ops

namespace fq {

std::optional<Variable> detail::attention_with_dropout(const Variable& q, const Variable& k,
                                                       const Variable& v, double dropout,
                                                       const ops::AttentionOptions& options,
                                                       const Variable& mask) {
  if (!q.device().is_cuda() || recorder() != nullptr) return {};
  const ProfileScope profile(ops::kAttention, "forward");
  const ops::Arguments own(q, k, v, options, mask);
  if (!own.fits_tiles()) return {};
  TiledAttention attention = own.tiled();
  attention.dropout = {{dropout, random_stream()}, 1.0 / (1.0 - dropout)};
  ++random_stream().op;  // as ops::dropout
  return attention.apply(ops::kAttention, own.q, own.k, own.v, own.inputs(mask), {});
}

Variable detail::attention_of_rows(const Variable& queries, const Variable& keys, const Variable& values,
                                   std::int64_t heads, const ops::AttentionOptions& options) {
  const std::int64_t samples = queries.dim(0), rows = queries.dim(1), width = queries.dim(2) / heads,
                     kv_heads = width == 0 ? heads : std::max<std::int64_t>(keys.dim(2) / width, 1);
  const AttentionShape shape{samples, heads, kv_heads, rows, keys.dim(1), width, values.dim(2) / kv_heads};
  const auto q = floats(queries, ops::kAttention), k = matching_floats(keys, q.tensor, ops::kAttention),
             v = matching_floats(values, q.tensor, ops::kAttention);
  // Shapes that do not fit go to the general function too, which throws with a message.
  const bool fits = heads % kv_heads == 0 &&
                    k.tensor.shape() == Shape{samples, shape.keys, kv_heads * width} &&
                    v.tensor.shape() == Shape{samples, shape.keys, kv_heads * shape.value_width};
  if (fits && TiledAttention::takes(shape, q.tensor.device(), q.tensor.dtype())) {
    const ProfileScope profile(ops::kAttention, "forward");
    const AttentionRows lines{
        heads, rows, shape.keys, 0, options.causal, ops::attention_scale(options, shape), {}};
    return TiledAttention{shape, lines, HeadOrder::rows, {}, ops::backward_factor_dtype(q, k, v)}.apply(
        ops::kAttention, q, k, v, {q.variable, k.variable, v.variable}, {});
  }
  if (!fits || !AttentionSamples::takes(shape, options.causal, q.tensor.device(), q.tensor.dtype())) {
    const Variable y =
        ops::scaled_dot_product_attention(ops::split_heads(queries, heads), ops::split_heads(keys, kv_heads),
                                          ops::split_heads(values, kv_heads), options);
    return ops::reshape(ops::transpose(y, {0, 2, 1, 3}), {samples, rows, heads * shape.value_width});
  }
  const ProfileScope profile(ops::kAttention, "forward");
  const AttentionSamples attention(shape, options.causal, ops::attention_scale(options, shape));
  constexpr auto row_major = Layout::row_major;
  Tensor y = attention.forward(q.tensor.to(row_major), k.tensor.to(row_major), v.tensor.to(row_major));
  const auto backward = [attention, factors = ops::backward_factor_dtype(q, k, v),
                         a = SavedFloats(q.variable), b = SavedFloats(k.variable),
                         c = SavedFloats(v.variable)](const Tensor& dy) {
    const ProfileScope gradients(ops::kAttention, "backward");
    return attention.backward(dy.to(row_major), a.get().to(row_major), b.get().to(row_major),
                              c.get().to(row_major), factors);
  };
  return record(ops::kAttention, std::move(y), {q.variable, k.variable, v.variable}, backward);
}

Variable detail::attention_of_packed(const Variable& packed, std::int64_t heads, std::int64_t kv_heads,
                                     const ops::AttentionOptions& options) {
  const std::int64_t samples = packed.dim(0), length = packed.dim(1), all = heads + 2 * kv_heads,
                     width = packed.dim(2) / all, keys = heads * width, values = keys + kv_heads * width;
  FQ_CHECK(packed.dim(2) == all * width, ops::kAttention, "{} columns are not divisible by {} heads",
           packed.dim(2), all);
  const AttentionShape shape{samples, heads, kv_heads, length, length, width, width};
  const auto x = floats(packed, ops::kAttention);
  if (!TiledAttention::takes(shape, x.tensor.device(), x.tensor.dtype())) {
    const auto part = [&](std::int64_t begin, std::int64_t end) {
      return ops::slice(x.variable, -1, begin, end);
    };
    return attention_of_rows(part(0, keys), part(keys, values), part(values, packed.dim(2)), heads, options);
  }
  const ProfileScope profile(ops::kAttention, "forward");
  const AttentionRows lines{heads, length, length, 0, options.causal, ops::attention_scale(options, shape),
                            {}};
  const DType factors = ops::backward_factor_dtype(x, x, x);
  return TiledAttention{shape, lines, HeadOrder::packed, {}, factors}.apply(ops::kAttention, x, x, x,
                                                                            {x.variable}, {});
}

}  // namespace fq
