#pragma once

/// Text, one token after another.
///
///     const Tensor prompt = Tensor::from<std::int64_t>({20, 8, 5}, {1, 3});
///     const Tensor ids = generate(model, prompt, {.tokens = 100, .temperature = 0.8, .context = 64});

#include <cstdint>

#include "fakequant/core/tensor.h"

namespace fq {

class Module;

struct GenerateOptions {
  std::int64_t tokens = 100;  ///< that follow the prompt, 0 or more
  double temperature = 1;  ///< what logits are divided by; 0: always the likeliest, of equal ones the first
  std::int64_t top_k = 0;  ///< so many of the likeliest are drawn from; 0: all
  std::uint64_t seed = 0;  ///< of the draws
  std::int64_t context = 256;  ///< tokens that the model sees at most, as it was trained with
  bool cache = true;           ///< whether keys and values of earlier tokens are kept (KvCache)
};

/// Ids i64 [N, L + tokens] of texts that begin with `prompts`, i64 [N, L] of L >= 1: each next id is drawn
/// from softmax(logits / temperature) of the last position. The model takes ids [N, L] and gives [N,
/// vocabulary, L]; it runs in evaluation mode, which is put back.
///
/// A text longer than the context slides: of n tokens the model sees those from the smallest multiple of
/// context / 2 on of which `context` are enough to reach the end, so that a cache is begun anew once in
/// context / 2 tokens. Text i is a function of the model, its prompt, the options and i, whatever other texts
/// there are and whether there is a cache: its draws are those of (seed, i, place). A model that a cache does
/// not continue with the same bits, as one of other layers along the tokens, or of floats whose sums depend
/// on the number of rows, runs without.
///
/// Throws ArgumentError for options out of range, ids outside of the vocabulary and a model of another
/// output, NumericError for logits that are NaN.
[[nodiscard]] Tensor generate(Module& model, const Tensor& prompts, const GenerateOptions& options = {});

}  // namespace fq
