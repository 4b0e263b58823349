#pragma once

/// Attention of several heads, and learned positions.
///
///     Attention layer({.width = 256, .heads = 4, .causal = true});     // [N, L, 256] to [N, L, 256]
///     Attention grouped({.width = 256, .heads = 8, .kv_heads = 2, .causal = true, .rotary = true});
///
/// `quantize` replaces the four projections, which are Linear children; those of one input share its
/// quantizer. What is between them, ops::scaled_dot_product_attention, stays in floats unless a rule puts its
/// factors on grids (layers/modules/quant_attention.h).

#include <optional>

#include "fakequant/layers/modules/kv_cache.h"
#include "fakequant/layers/modules/linear.h"
#include "fakequant/layers/modules/norm.h"
#include "fakequant/layers/modules/rotary_scaling.h"

namespace fq {

struct AttentionOptions {
  std::int64_t width = 0;         ///< of the input and the output
  std::int64_t heads = 1;         ///< of queries
  std::int64_t kv_heads = 0;      ///< of keys and values, a divisor of `heads`; 0 for as many
  std::int64_t head_size = 0;     ///< 0 for width / heads
  std::int64_t memory_width = 0;  ///< of the second input, where there is one; 0 for `width`
  bool causal = false;            ///< whether a query sees what is not behind it alone
  bool rotary = false;            ///< whether queries and keys are turned by their positions (ops::rotary)
  bool bias = true;               ///< of the projections
  std::optional<bool> out_bias = {};  ///< of the last one; `bias` unless it is given
  double rotary_base = 10000;         ///< of the angles (ops::Rotary)
  RotaryScaling rotary_scaling = {};  ///< of the angles
  double qk_norm = 0;                 ///< eps of RMS norms of each head's queries and keys; 0 for none
  double dropout = 0;                 ///< share of the probabilities that training leaves out, below 1
};

/// y = out_proj(attention(q_proj(x), k_proj(m), v_proj(m))), x [N, L, width] (Vaswani et al.,
/// arXiv:1706.03762). m is x or, called with two inputs, the second, [N, S, memory_width]. A third is a mask
/// as ops::scaled_dot_product_attention takes it. Children are q_proj, k_proj, v_proj and out_proj; with
/// `qk_norm` q_norm and k_norm too (Henry et al., arXiv:2010.04245), RmsNorms of a head size each, which come
/// before rotary positions. With `dropout` training makes the probabilities by themselves, and again for
/// backward, and drops some of them as ops::dropout does; on grids, of their codes.
class Attention : public Module {
 public:
  /// Throws ArgumentError for sizes below 1, heads that do not divide the width (without a head size) or that
  /// kv_heads do not divide, an odd head size with `rotary`, a base that is not above 0, a scaling that
  /// `check_rotary_scaling` refuses, a negative eps and a share of dropout out of range.
  explicit Attention(const AttentionOptions& options);
  [[nodiscard]] std::string type() const override { return "attention"; }
  [[nodiscard]] std::string describe() const override;
  /// With every size that was 0 filled in.
  [[nodiscard]] const AttentionOptions& options() const noexcept { return options_; }
  /// From now on each call continues the one before: x is what follows, and its queries see the keys and
  /// values of all calls. They are kept in `state`, which outlives this, as floats or, where they are on a
  /// grid, as codes; null ends it. KvCache does it for a whole model. Calls throw ArgumentError unless the
  /// layer is causal and reads one input.
  void continue_from(AttentionState* state) noexcept { state_ = state; }

 protected:
  struct Adopt {};
  Attention(Adopt, const Attention& other);
  Variable forward(const Variable& x) override { return forward(std::vector<Variable>{x}); }
  Variable forward(const std::vector<Variable>& inputs) override;

  /// [N, heads, L, head_size] and twice [N, kv_heads, S, head_size], behind rotary positions.
  struct Heads {
    Variable q, k, v;
  };
  /// What the products read, and the cache keeps, of the three.
  [[nodiscard]] virtual Heads on_grids(Heads heads) const { return heads; }
  /// Whether `on_grids` and `attend` change nothing of attention in floats.
  [[nodiscard]] virtual bool is_plain() const { return true; }
  /// [N, heads, L, head_size]; the mask may be undefined.
  [[nodiscard]] virtual Variable attend(const Heads& heads, const Variable& mask) const;

 private:
  [[nodiscard]] Variable heads_of(const Variable& x, std::int64_t heads) const;
  /// Whether heads go from the projections into products as they lie.
  [[nodiscard]] bool attends_rows(bool masked) const;
  /// The three of what the layer reads, and the positions that come with them.
  [[nodiscard]] Heads projected(const Variable& x, const Variable& memory) const;
  [[nodiscard]] std::shared_ptr<detail::Slot> shared(const Attention& other, std::string_view name);

  AttentionOptions options_;
  Child<Linear> q_, k_, v_, out_;
  Child<RmsNorm> q_norm_, k_norm_;
  AttentionState* state_ = nullptr;
};

/// y = x + weight[0 .. L), x [N, L, width]: a learned vector for each position. The parameter `weight` is
/// [context, width].
class Positions : public Module {
 public:
  /// Uniform within 1/sqrt(width) at first. Throws ArgumentError for sizes below 1.
  Positions(std::int64_t context, std::int64_t width);
  [[nodiscard]] std::string type() const override { return "positions"; }
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] std::int64_t context() const noexcept { return weight_.dim(0); }
  /// From now on each call's first position is the one behind the last of the call before; see
  /// Attention::continue_from.
  void continue_from(AttentionState* state) noexcept { state_ = state; }

 protected:
  /// Throws ArgumentError for more positions than `context`.
  Variable forward(const Variable& x) override;
  using Module::forward;

 private:
  Variable weight_;
  AttentionState* state_ = nullptr;
};

}  // namespace fq
