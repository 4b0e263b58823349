#pragma once

/// What a model has seen of a text, so that a token is computed once.
///
///     KvCache cache(model);
///     Variable logits = model(x);  // [1, 20]
///     logits = model(y);           // [1, 1]: the 21st token, which sees the 20 before
///
/// Products of integers have the bits of a call with all tokens at once. Sums of float products may be added
/// up in another order for one row than for many, by their sizes, and differ in the last bits.

#include <cstdint>
#include <utility>
#include <vector>

#include "fakequant/layers/modules/module.h"

namespace fq {

class Attention;
class Positions;

/// Keys and values that an Attention has made, or how far Positions have counted.
class AttentionState {
 public:
  /// Tokens of all calls so far.
  [[nodiscard]] std::int64_t tokens() const noexcept { return tokens_; }
  /// Counts tokens of which nothing is kept.
  void advance(std::int64_t tokens) noexcept { tokens_ += tokens; }
  /// Keys and values [N, K, S, D] of all calls, these, [N, K, L, D], behind the others. Codes with one scale
  /// stay codes, everything else is kept as floats. Throws ArgumentError for another number of samples.
  [[nodiscard]] std::pair<Variable, Variable> extended(const Variable& keys, const Variable& values);
  /// What is kept takes so many bytes.
  [[nodiscard]] std::int64_t bytes() const;
  /// Forgets all calls.
  void clear() { *this = {}; }

 private:
  std::int64_t tokens_ = 0;
  Variable keys_, values_;
};

/// While it lives each call of the model continues the one before, by Attention::continue_from of all its
/// layers. The model belongs to it: no other thread calls it, and it is not changed. Calls are not recorded
/// (NoGrad), as what was kept takes no gradient.
class KvCache {
 public:
  /// The model outlives it. Throws ArgumentError for a model without an attention layer, and for one that is
  /// not causal.
  explicit KvCache(Module& model);
  ~KvCache();
  KvCache(const KvCache&) = delete;  // the layers know where it is
  KvCache& operator=(const KvCache&) = delete;

  /// Tokens that the model has seen. Throws ArgumentError for layers that have seen different numbers, as
  /// those do that a model runs twice a call.
  [[nodiscard]] std::int64_t tokens() const;
  /// What all layers keep takes so many bytes.
  [[nodiscard]] std::int64_t bytes() const;
  /// Forgets all calls: the next one begins a text.
  void clear();

 private:
  std::vector<Attention*> attentions_;
  std::vector<Positions*> positions_;
  std::vector<AttentionState> states_;
};

}  // namespace fq
