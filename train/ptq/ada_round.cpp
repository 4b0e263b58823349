#include <algorithm>

#include "fakequant/core/detail/check.h"
#include "fakequant/train/optimizer.h"
#include "fakequant/train/ptq/algorithms.h"
#include "fakequant/train/ptq/detail/algorithm_entry.h"
#include "fakequant/train/ptq/detail/chosen_codes.h"
#include "fakequant/train/ptq/detail/soft_rounding.h"

namespace fq::ptq {
namespace {

Tensor learned(const WeightedLayer& layer, const WeightGrid& grid, const InputStatistics& statistics,
               const AdaRoundOptions& options) {
  SoftRounding rounding(layer, grid, statistics);
  Variable v = rounding.v();
  Adam adam({{"v", v}}, {.learning_rate = options.learning_rate});
  // During the warm-up only the error counts, so that h can move freely.
  const int warmup = static_cast<int>(options.warmup * options.iterations);
  for (int i = 0; rounding.relax() > 0 && i < options.iterations; ++i) {
    const double done = double(i - warmup) / std::max(1, options.iterations - warmup);
    // With a large beta the term is flat except near 0 and 1, so that h moves freely. A small beta pushes
    // every h to 0 or 1.
    const double beta = options.beta_start + (options.beta_end - options.beta_start) * done;
    v.set_grad(rounding.gradient(i < warmup ? 0.0f : static_cast<float>(options.regularization),
                                 static_cast<float>(beta)));
    adam.step();
  }
  return rounding.chosen();
}

}  // namespace

Report ada_round(Module& model, DataLoader& data, const AdaRoundOptions& options) {
  FQ_CHECK(options.iterations > 0, "ada_round", "iterations is {}: use 1 or more", options.iterations);
  FQ_CHECK(options.warmup >= 0 && options.warmup <= 1, "ada_round", "warmup is {}: use 0 to 1",
           options.warmup);
  FQ_CHECK(options.regularization >= 0 && options.beta_start >= 1 && options.beta_end >= 1, "ada_round",
           "regularization is {} (use 0 or more), beta {} to {} (use 1 or more)", options.regularization,
           options.beta_start, options.beta_end);
  return choose_codes(
      model, data, {.samples = options.samples, .ranks = options.ranks}, "ada_round",
      [&](const WeightedLayer& layer, const WeightGrid& grid, const InputStatistics& statistics) {
        return learned(layer, grid, statistics, options);
      });
}

AlgorithmEntry adaround_entry() {
  return {
      .options = {{"iterations", {}, OptionType::count}, {"learning_rate"}, {"regularization"}, {"warmup"}},
      .after = [](Module& model, DataLoader& data, const AlgorithmOptions& given) {
        AdaRoundOptions options{.samples = given.samples(), .ranks = given.ranks()};
        options.iterations = given.count("iterations", options.iterations);
        options.learning_rate = given.number("learning_rate", options.learning_rate);
        options.regularization = given.number("regularization", options.regularization);
        options.warmup = given.number("warmup", options.warmup);
        return ada_round(model, data, options);
      }};
}

}  // namespace fq::ptq
