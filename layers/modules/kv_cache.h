#pragma once

/// Key-value cache of a model, so that each token is computed once.
///
///     KvCache cache(model);
///     Variable logits = model(x);  // [1, 20]
///     logits = model(y);           // [1, 1]: the 21st token, which sees the 20 before
///
/// Integer products have the same bits as a call with all tokens at once. Float products may sum in another
/// order for one row than for many, and then differ in the last bits.

#include <cstdint>
#include <utility>
#include <vector>

#include "fakequant/layers/modules/module.h"

namespace fq {

class Attention;
class Positions;

/// Keys and values of an Attention layer, or the number of tokens that a Positions layer has counted.
class AttentionState {
 public:
  /// Returns the number of tokens of all calls so far.
  [[nodiscard]] std::int64_t tokens() const noexcept { return tokens_; }
  /// Counts tokens without storing keys or values.
  void advance(std::int64_t tokens) noexcept { tokens_ += tokens; }
  /// Appends keys and values [N, K, L, D] and returns the keys and values of all calls, [N, K, S, D]. Codes
  /// with one scale stay codes. Other values are stored as floats. Throws ArgumentError if the number of
  /// samples changes.
  [[nodiscard]] std::pair<Variable, Variable> extended(const Variable& keys, const Variable& values);
  /// Returns the size of the stored keys and values in bytes.
  [[nodiscard]] std::int64_t bytes() const;
  /// Forgets all calls.
  void clear() { *this = {}; }

 private:
  std::int64_t tokens_ = 0;
  Variable keys_, values_;
};

/// Makes each call of the model continue the one before it, through Attention::attach_state of all its
/// layers, as long as the cache lives. During this time no other thread may call or change the model. Calls
/// need a NoGrad scope, because cached values take no gradient.
class KvCache {
 public:
  /// The model must outlive the cache. Throws ArgumentError if the model has no attention layer, or one that
  /// is not causal.
  explicit KvCache(Module& model);
  ~KvCache();
  KvCache(const KvCache&) = delete;  // the layers hold pointers into it
  KvCache& operator=(const KvCache&) = delete;

  /// Returns the number of tokens that the model has seen. Throws ArgumentError if layers have seen different
  /// numbers, for example because the model runs one of them twice per call.
  [[nodiscard]] std::int64_t tokens() const;
  /// Returns the size of all stored keys and values in bytes.
  [[nodiscard]] std::int64_t bytes() const;
  /// Removes all stored values: the next call begins a text.
  void clear();

 private:
  std::vector<Attention*> attentions_;
  std::vector<Positions*> positions_;
  std::vector<AttentionState> states_;
};

}  // namespace fq
