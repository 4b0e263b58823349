#pragma once

/// Generates text token by token.
///
///     const Tensor prompt = Tensor::from<std::int64_t>({20, 8, 5}, {1, 3});
///     const Tensor ids = generate(model, prompt, {.tokens = 100, .temperature = 0.8, .context = 64});

#include <cstdint>

#include "fakequant/core/tensor.h"

namespace fq {

class Module;

struct GenerateOptions {
  std::int64_t tokens = 100;   ///< tokens to generate after the prompt, 0 or more
  double temperature = 1;      ///< divisor of the logits; 0: the most likely token, the first of equal ones
  std::int64_t top_k = 0;      ///< number of most likely tokens to sample from; 0: all
  std::uint64_t seed = 0;      ///< seed of the random draws
  std::int64_t context = 256;  ///< largest number of tokens that the model sees, as in training
  bool cache = true;           ///< whether to cache keys and values of earlier tokens (KvCache)
};

/// Returns ids i64 [N, L + tokens] of texts that begin with `prompts`, i64 [N, L] with L >= 1. Each next id
/// is drawn from softmax(logits / temperature) of the last position. The model maps ids [N, L] to [N,
/// vocabulary, L]. It runs in evaluation mode. Its mode is restored afterwards.
///
/// The context of a text with more than `context` tokens is a sliding window. It begins at the smallest
/// multiple of context / 2 from which `context` tokens reach the end. A cache is therefore cleared only once
/// in context / 2 tokens.
///
/// Text i depends only on the model, its prompt, the options and i. It does not depend on the other texts or
/// on the cache: its draws are a function of (seed, i, position). The cache is disabled for a model that does
/// not give the same bits with it. Examples are other layers along the tokens, and float sums that depend on
/// the number of rows.
///
/// Throws ArgumentError for options out of range, ids outside the vocabulary and a model with another output
/// shape. Throws NumericError for logits that are NaN.
[[nodiscard]] Tensor generate(Module& model, const Tensor& prompts, const GenerateOptions& options = {});

}  // namespace fq
