#pragma once

/// Multi-head attention and learned positions.
///
///     Attention layer({.width = 256, .heads = 4, .causal = true});     // [N, L, 256] to [N, L, 256]
///     Attention grouped({.width = 256, .heads = 8, .kv_heads = 2, .causal = true, .rotary = true});
///
/// `quantize` replaces the four projections, which are Linear children. Projections of the same input share
/// its quantizer. The attention between the projections, ops::scaled_dot_product_attention, stays in floats
/// unless a rule quantizes its factors (layers/modules/quant_attention.h).

#include <memory>
#include <optional>

#include "fakequant/core/ops/attention.h"
#include "fakequant/layers/modules/kv_cache.h"
#include "fakequant/layers/modules/linear.h"
#include "fakequant/layers/modules/norm.h"
#include "fakequant/layers/modules/rotary_scaling.h"

namespace fq {

namespace detail {
class JoinedLinears;
}

struct AttentionOptions {
  std::int64_t width = 0;         ///< features of the input and the output
  std::int64_t heads = 1;         ///< heads of the queries
  std::int64_t kv_heads = 0;      ///< heads of the keys and values, a divisor of `heads`; 0: same as `heads`
  std::int64_t head_size = 0;     ///< features per head; 0: width / heads
  std::int64_t memory_width = 0;  ///< features of the second input, if there is one; 0: same as `width`
  bool causal = false;            ///< whether a query sees only keys up to its own position
  bool rotary = false;            ///< whether queries and keys are rotated by position (ops::rotary)
  bool bias = true;               ///< whether projections have a bias
  std::optional<bool> out_bias = {};  ///< whether the output projection has a bias; default: `bias`
  double rotary_base = 10000;         ///< base of the rotary angles (ops::Rotary)
  RotaryScaling rotary_scaling = {};  ///< scaling of the rotary angles
  double qk_norm = 0;                 ///< eps of the RMS norms of each head's queries and keys; 0: no norms
  double dropout = 0;                 ///< probability of dropping an attention weight in training, below 1
};

/// Computes y = out_proj(attention(q_proj(x), k_proj(m), v_proj(m))), x [N, L, width] (Vaswani et al.,
/// arXiv:1706.03762). m is x or, in a call with two inputs, the second input [N, S, memory_width]. A third
/// input is a mask as for ops::scaled_dot_product_attention.
///
/// The children are q_proj, k_proj, v_proj and out_proj. With `qk_norm` there are also q_norm and k_norm
/// (Henry et al., arXiv:2010.04245): RmsNorms over a head, applied before rotary positions. With `dropout`,
/// training computes the attention weights explicitly, and again in backward, and drops elements as
/// ops::dropout does. On quantized weights it drops codes.
class Attention : public Module {
 public:
  /// Throws ArgumentError for sizes below 1, for heads that do not divide the width (if `head_size` is 0),
  /// for kv_heads that do not divide the heads, and for an odd head size with `rotary`. Also for a base that
  /// is not above 0, an invalid scaling (`check_rotary_scaling`), a negative eps, and a dropout out of range.
  explicit Attention(const AttentionOptions& options);
  [[nodiscard]] std::string type() const override { return "attention"; }
  [[nodiscard]] std::string describe() const override;
  /// Returns the options. Sizes that were 0 have their actual value.
  [[nodiscard]] const AttentionOptions& options() const noexcept { return options_; }
  /// Makes each later call continue the one before it: x holds the next tokens, and its queries see the keys
  /// and values of all calls. `state`, which must outlive this layer, stores them as floats, or as codes if
  /// they are quantized. Null ends it. KvCache does it for a whole model. Calls throw ArgumentError unless
  /// the layer is causal and has one input.
  void attach_state(AttentionState* state) noexcept { state_ = state; }

 protected:
  struct Adopt {};
  Attention(Adopt, const Attention& other);
  Variable forward(const Variable& x) override { return forward(std::vector<Variable>{x}); }
  Variable forward(const std::vector<Variable>& inputs) override;

  /// q [N, heads, L, head_size]; k and v [N, kv_heads, S, head_size]; after rotary positions.
  struct Heads {
    Variable q, k, v;
  };
  /// Returns the heads as the products read them and the cache stores them.
  [[nodiscard]] virtual Heads quantize_heads(Heads heads) const { return heads; }
  /// Whether `quantize_heads` and `attend` compute plain attention in floats.
  [[nodiscard]] virtual bool is_plain() const { return true; }
  /// Returns [N, heads, L, head_size]. The mask may be undefined.
  [[nodiscard]] virtual Variable attend(const Heads& heads, const Variable& mask) const;

 private:
  [[nodiscard]] Variable split_heads(const Variable& x, std::int64_t heads) const;
  /// Whether the kernels read the projections row by row, without a transpose to heads.
  [[nodiscard]] bool attends_rows(bool masked) const;
  /// Returns the attention of `attends_rows`, before the last projection. Undefined for rotary positions if
  /// q, k and v are not one product.
  [[nodiscard]] Variable attend_rows(const Variable& x, const Variable& memory) const;
  /// Returns the rotary positions of the next `tokens` tokens.
  [[nodiscard]] ops::Rotary rotation(std::int64_t tokens) const;
  /// Returns the projections of the inputs, with rotary positions applied.
  [[nodiscard]] Heads projected(const Variable& x, const Variable& memory) const;
  [[nodiscard]] std::shared_ptr<detail::Slot> shared(const Attention& other, std::string_view name);

  AttentionOptions options_;
  Child<Linear> q_, k_, v_, out_;
  std::shared_ptr<detail::JoinedLinears> joined_;  // of q_, k_ and v_
  Child<RmsNorm> q_norm_, k_norm_;
  AttentionState* state_ = nullptr;
};

/// Computes y = x + weight[0 .. L), x [N, L, width]: adds a learned vector to each position. The parameter
/// `weight` is [context, width].
class Positions : public Module {
 public:
  /// Initialises uniformly within 1/sqrt(width). Throws ArgumentError for sizes below 1.
  Positions(std::int64_t context, std::int64_t width);
  [[nodiscard]] std::string type() const override { return "positions"; }
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] std::int64_t context() const noexcept { return weight_.dim(0); }
  /// Makes the first position of each later call follow the last position of the call before it. See
  /// Attention::attach_state.
  void attach_state(AttentionState* state) noexcept { state_ = state; }

 protected:
  /// Throws ArgumentError if x has more than `context` positions.
  Variable forward(const Variable& x) override;
  using Module::forward;

 private:
  Variable weight_;
  AttentionState* state_ = nullptr;
};

}  // namespace fq
