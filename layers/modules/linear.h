#pragma once

/// Layers with a weight matrix: Linear and Embedding.
///
///     Linear fc(784, 10);
///     Variable logits = fc(images);  // [N, 784] -> [N, 10]
///
/// `quantize` replaces Linear by QuantLinear. It leaves an Embedding unchanged, except for the target ggml.

#include "fakequant/layers/modules/module.h"

namespace fq {

/// Computes y = x W^T + b, x [.., in_features] -> [.., out_features]. The parameters are weight [out, in] and
/// bias [out]. They are initialised uniformly within 1/sqrt(in_features) from this thread's random stream.
/// Open a RandomScope (core/random.h) to get the same values in every run.
class Linear : public Module {
 public:
  /// Throws ArgumentError for sizes below 1.
  Linear(std::int64_t in_features, std::int64_t out_features, bool bias = true);

  [[nodiscard]] std::string type() const override { return "linear"; }
  [[nodiscard]] std::string describe() const override;
  /// The parameter [out, in]; it holds codes once `compress` has packed it.
  [[nodiscard]] const Variable& weight() const noexcept { return weight_; }
  /// Undefined without a bias.
  [[nodiscard]] const Variable& bias() const noexcept { return bias_; }
  /// Returns the axis of the weight that holds output channels. Ranges per channel lie along it.
  [[nodiscard]] int channel_axis() const { return 0; }
  /// Adds a bias of zeros if the layer has none. Folding a batch norm needs it.
  void ensure_bias();

 protected:
  struct Adopt {};
  Linear(Adopt, const Linear& other);
  Variable forward(const Variable& x) override { return apply(x, weight_); }
  using Module::forward;
  [[nodiscard]] Variable apply(const Variable& x, const Variable& w) const;

  Variable weight_;
  Variable bias_;
};

/// Looks up rows of a table [vocabulary, width]: ids [..] (i32, i64, or floats with whole values) -> [..,
/// width]. The table is the parameter `weight`.
class Embedding : public Module {
 public:
  /// The table is initialised uniformly within 1/sqrt(width), from this thread's random stream. Throws
  /// ArgumentError for sizes below 1.
  Embedding(std::int64_t vocabulary, std::int64_t width);
  [[nodiscard]] std::string type() const override { return "embedding"; }
  [[nodiscard]] std::string describe() const override;

 protected:
  struct Adopt {};
  Embedding(Adopt, const Embedding& other);
  Variable forward(const Variable& x) override;
  using Module::forward;

  Variable weight_;
};

/// A linear layer that shares the weight of another layer: y = x W^T + b. W [out, in] is a parameter of both
/// layers, like the table of an Embedding (Press and Wolf, arXiv:1608.05859). Its gradient is the sum of
/// both uses. Checkpoints store it once, under the first name.
///
///     Embedding tokens(65, 128);
///     TiedLinear head(tokens.named_parameters().front().second, false);  // [.., 128] -> [.., 65]
///
/// `quantize` replaces it by a QuantLinear: the product reads codes of W, while the other layer follows its
/// own rules. A table stays in floats, except for the target ggml.
class TiedLinear : public Linear {
 public:
  /// With `bias`, the layer has its own bias. Throws ArgumentError if the weight does not have two axes.
  TiedLinear(const Variable& weight, bool bias);
};

/// Whether several layers of the model share the parameter, so that no single layer may change it.
[[nodiscard]] bool is_tied(const Module& model, const Variable& parameter);

}  // namespace fq
