#include "fakequant/layers/model/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/random.h"
#include "fakequant/layers/modules/attention.h"
#include "fakequant/layers/modules/detail/module_scopes.h"

namespace fq {
namespace {

using Ids = std::vector<std::int64_t>;

// Attention that is not causal changes earlier positions with each token.
bool supports_cache(Module& model) {
  bool any = false;
  for (const auto& [path, module] : model.named_modules()) {
    const auto* attention = dynamic_cast<const Attention*>(module);
    if (attention != nullptr && !attention->options().causal) return false;
    any = any || attention != nullptr;
  }
  return any;
}

// Returns a uniform number in [0, 1) with 53 bits. It depends only on the seed, the row of the text and the
// position, so the cache does not change the result.
double draw(const GenerateOptions& options, std::uint32_t text, std::uint64_t position) {
  const auto word = [](std::uint64_t x, int shift) { return static_cast<std::uint32_t>(x >> shift); };
  const auto bits = philox({text, word(position, 0), word(position, 32), 0},
                           {word(options.seed, 0), word(options.seed, 32)});
  const std::uint64_t wide = (std::uint64_t{bits[0]} << 32 | bits[1]) >> 11;
  return static_cast<double>(wide) * 0x1p-53;
}

std::int64_t sample_token(const std::vector<float>& logits, const GenerateOptions& options, double share) {
  const auto largest = std::ranges::max_element(logits);
  if (options.temperature == 0) return largest - logits.begin();
  std::vector<std::size_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), std::size_t{0});
  if (const auto count = static_cast<std::size_t>(options.top_k); count > 0 && count < ids.size()) {
    // Stable: of equal logits the lower ids are kept. Sorted again by id, so that sums have one order.
    std::ranges::stable_sort(ids, [&](auto a, auto b) { return logits[a] > logits[b]; });
    ids.resize(count);
    std::ranges::sort(ids);
  }
  std::vector<double> sums;
  double sum = 0;
  for (const auto id : ids)
    // Inverse transform sampling. The largest logit is subtracted, so that exp cannot overflow.
    sums.push_back(sum += std::exp((double{logits[id]} - double{*largest}) / options.temperature));
  const auto found = std::ranges::upper_bound(sums, share * sum);
  return static_cast<std::int64_t>(ids[std::min(std::size_t(found - sums.begin()), ids.size() - 1)]);
}

class Generation {
 public:
  Generation(Module& model, const Tensor& prompts, const GenerateOptions& options)
      : model_(model), options_(options), texts_(prompts.dim(0)), length_(prompts.dim(1)) {
    const auto ids = prompts.to_vector<std::int64_t>();
    for (std::int64_t i = 0; i < texts_; ++i)
      rows_.emplace_back(ids.begin() + i * length_, ids.begin() + (i + 1) * length_);
    if (options.cache && supports_cache(model)) cache_.emplace(model);
  }

  Tensor run() {
    for (std::int64_t i = 0; i < options_.tokens; ++i) {
      const std::vector<float> all = next_logits();
      const auto vocabulary = static_cast<std::ptrdiff_t>(all.size()) / texts_;
      for (std::int64_t n = 0; n < texts_; ++n) {
        const std::vector<float> own(all.begin() + n * vocabulary, all.begin() + (n + 1) * vocabulary);
        if (std::ranges::any_of(own, [](float x) { return std::isnan(x); }))
          throw NumericError(fmt::format("[generate] the logits of token {} of text {} are NaN", length_, n));
        const auto position = static_cast<std::uint64_t>(length_);
        rows_[std::size_t(n)].push_back(
            sample_token(own, options_, draw(options_, static_cast<std::uint32_t>(n), position)));
      }
      ++length_;
    }
    Ids all;
    for (const auto& row : rows_) all.insert(all.end(), row.begin(), row.end());
    return Tensor::from(all, {texts_, length_});
  }

 private:
  // The window moves by half a context at a time. A step of one token would invalidate the cache each time.
  [[nodiscard]] std::int64_t window_begin() const {
    const std::int64_t stride = std::max<std::int64_t>(options_.context / 2, 1),
                       over = std::max<std::int64_t>(length_ - options_.context, 0);
    return (over + stride - 1) / stride * stride;
  }

  /// Returns the logits of the last position of each text.
  std::vector<float> next_logits() {
    const std::int64_t begin = window_begin();
    if (!cache_) return logits(begin);
    // A moved window has other positions, so it starts a new cache.
    const bool continues = begin == begin_ && cache_->tokens() > 0;
    if (!continues) cache_->clear();
    begin_ = begin;
    const auto found = logits(begin + cache_->tokens());
    if (!continues || checked_) return found;
    // The first continued step also runs without the cache. If the bits differ, the model does not support a
    // cache, for example because a quantizer takes its range from the whole input, and the cache is dropped.
    checked_ = true;
    const std::int64_t seen = cache_->tokens();
    cache_->clear();
    const auto whole = logits(begin);
    if (whole != found || cache_->tokens() != seen) cache_.reset();
    return whole;
  }

  std::vector<float> logits(std::int64_t first) {
    const std::int64_t count = length_ - first;
    Ids ids;
    for (const auto& row : rows_) ids.insert(ids.end(), row.begin() + first, row.end());
    const Tensor y = model_(Variable(Tensor::from(ids, {texts_, count}).to(model_.device()))).tensor();
    FQ_CHECK(y.rank() == 3 && y.dim(0) == texts_ && y.dim(2) == count, "generate",
             "the model gives {} for ids {}: it must return [N, vocabulary, L]", to_string(y.shape()),
             to_string(Shape{texts_, count}));
    const auto all = y.to(DType::f32).to(Layout::row_major).to_vector<float>();
    // y: [N, vocabulary, L]; only the last position of each row is read.
    std::vector<float> last;
    for (std::int64_t row = 0; row < texts_ * y.dim(1); ++row)
      last.push_back(all[std::size_t((row + 1) * count - 1)]);
    return last;
  }

  Module& model_;
  const GenerateOptions& options_;
  std::int64_t texts_, length_, begin_ = 0;
  std::vector<Ids> rows_;
  std::optional<KvCache> cache_;
  bool checked_ = false;
};

}  // namespace

Tensor generate(Module& model, const Tensor& prompts, const GenerateOptions& options) {
  FQ_CHECK(prompts.rank() == 2 && prompts.dim(0) > 0 && prompts.dim(1) > 0 && prompts.dtype() == DType::i64,
           "generate", "the prompts are {}: use i64 [texts, tokens] of one or more", prompts.describe());
  FQ_CHECK(
      options.tokens >= 0 && options.top_k >= 0 && options.context > 0 && options.temperature >= 0 &&
          std::isfinite(options.temperature),
      "generate",
      "{} tokens, top_k {}, a context of {}, a temperature of {}: use 0 or more, and 1 or more of context",
      options.tokens, options.top_k, options.context, options.temperature);
  const NoGrad no_grad;
  const detail::EvaluationMode mode(model);
  return Generation(model, prompts.to(Device::cpu()), options).run();
}

}  // namespace fq
