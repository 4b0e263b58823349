#include "fakequant/layers/modules/kv_cache.h"

#include <algorithm>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/ops/shape.h"
#include "fakequant/layers/modules/attention.h"

namespace fq {
namespace {

constexpr int kTokens = 2;  // the axis of tokens in [N, K, S, D]

// Codes are cached as codes: the cache of a quantized network is smaller, and attention multiplies them
// again.
Variable append_tokens(const Variable& before, const Variable& more) {
  const Variable added = more.quantized() != nullptr ? more.detach() : more.as_float().detach();
  if (!before.defined()) return added;
  FQ_CHECK(before.dim(0) == added.dim(0), "kv_cache",
           "the cache has {} texts, the input has {}: use the same number, or clear the cache", before.dim(0),
           added.dim(0));
  return ops::concat({before, added}, kTokens).detach();
}

std::int64_t stored_bytes(const Variable& x) {
  if (!x.defined()) return 0;
  const Tensor kept = x.quantized() != nullptr ? x.quantized()->codes : x.tensor();
  return kept.numel() * bit_width(kept.dtype()) / 8;
}

}  // namespace

std::pair<Variable, Variable> AttentionState::extended(const Variable& keys, const Variable& values) {
  FQ_CHECK(!grad_enabled(), "kv_cache",
           "cached keys and values take no gradient: open a NoGrad scope around calls of the model");
  keys_ = append_tokens(keys_, keys);
  values_ = append_tokens(values_, values);
  tokens_ += keys.dim(kTokens);
  return {keys_, values_};
}

std::int64_t AttentionState::bytes() const { return stored_bytes(keys_) + stored_bytes(values_); }

KvCache::KvCache(Module& model) {
  for (const auto& [path, module] : model.named_modules()) {
    if (auto* attention = dynamic_cast<Attention*>(module)) {
      FQ_CHECK(attention->options().causal, "kv_cache",
               "'{}' is not causal: each new token changes the outputs of earlier tokens", path);
      attentions_.push_back(attention);
    }
    if (auto* positions = dynamic_cast<Positions*>(module)) positions_.push_back(positions);
  }
  FQ_CHECK(!attentions_.empty(), "kv_cache", "the model has no attention layer that sees earlier tokens");
  // Sized once before pointers to its elements are handed out.
  states_.resize(attentions_.size() + positions_.size());
  std::size_t next = 0;
  for (auto* layer : attentions_) layer->attach_state(&states_[next++]);
  for (auto* layer : positions_) layer->attach_state(&states_[next++]);
}

KvCache::~KvCache() {
  for (auto* layer : attentions_) layer->attach_state(nullptr);
  for (auto* layer : positions_) layer->attach_state(nullptr);
}

std::int64_t KvCache::tokens() const {
  // All layers must have seen the same tokens; a model that skips layers cannot be cached.
  const std::int64_t first = states_.front().tokens();
  for (const auto& state : states_)
    FQ_CHECK(state.tokens() == first, "kv_cache",
             "a layer has seen {} tokens, another {}: the model runs some of them more often than others",
             first, state.tokens());
  return first;
}

std::int64_t KvCache::bytes() const {
  std::int64_t sum = 0;
  for (const auto& state : states_) sum += state.bytes();
  return sum;
}

void KvCache::clear() {
  for (auto& state : states_) state.clear();
}

}  // namespace fq
