#pragma once

/// Built-in networks, small and quantized, for tests of whole steps.

#include <memory>
#include <string>

#include "fakequant/core/ops/loss.h"
#include "fakequant/core/random.h"
#include "fakequant/layers/config/quant_config.h"
#include "fakequant/layers/model/fold.h"
#include "fakequant/layers/model/model_file.h"
#include "fakequant/layers/quantize.h"

namespace fq::test {

enum class Kind { float_, live_bn, folded };

/// Ranges of 4 for activations, 0.5 for weights.
inline std::shared_ptr<Graph> built(const std::string& name, const std::string& options, const Shape& sample,
                                    Kind kind) {
  auto model = build_model(ModelSpec::builtin(name, options), sample, 10);
  Shape input = sample;
  input.insert(input.begin(), 1);
  if (kind == Kind::folded) (void)fold_batch_norm(*model, input);
  if (kind == Kind::float_) return model;
  (void)quantize(*model, QuantConfig::preset("int8"), input);
  visit_quantizers(*model, [](const NamedQuantizer& q) {
    if (!q.quantizer->enabled() || !q.quantizer->descriptor().needs_amax()) return;
    q.quantizer->set_amax(Tensor::scalar(q.name.ends_with("weight_quantizer") ? 0.5 : 4));
  });
  return model;
}

inline Tensor images(const Shape& sample, std::int64_t count, std::uint64_t seed = 1) {
  Shape shape = sample;
  shape.insert(shape.begin(), count);
  Tensor x = Tensor::empty(shape);
  fill_normal(x, 0, 1, seed);
  return x;
}

inline Tensor labels(std::int64_t count) {
  std::vector<std::int64_t> y;
  for (std::int64_t i = 0; i < count; ++i) y.push_back(i * 7 % 10);
  return Tensor::from(y, {count});
}

}  // namespace fq::test
