#pragma once

/// Layers that are a matrix: fully connected, and embedding.
///
///     Linear fc(784, 10);
///     Variable logits = fc(images);  // [N, 784] -> [N, 10]
///
/// `quantize` replaces Linear by QuantLinear; an Embedding stays as it is, but for the target ggml.

#include "fakequant/layers/modules/module.h"

namespace fq {

/// y = x W^T + b, x [.., in_features] -> [.., out_features]. Parameters are weight [out, in] and bias [out],
/// initialised uniformly within 1/sqrt(in_features) from this thread's random stream: open a RandomScope
/// (core/random.h) for the same values in every run.
class Linear : public Module {
 public:
  /// Without `bias` there is none. Throws ArgumentError for sizes below 1.
  Linear(std::int64_t in_features, std::int64_t out_features, bool bias = true);

  [[nodiscard]] std::string type() const override { return "linear"; }
  [[nodiscard]] std::string describe() const override;
  /// The parameter [out, in]; it holds codes once `compress` has packed it.
  [[nodiscard]] const Variable& weight() const noexcept { return weight_; }
  /// Undefined without a bias.
  [[nodiscard]] const Variable& bias() const noexcept { return bias_; }
  /// The axis of the weight along which output channels lie: ranges per channel are kept along it.
  [[nodiscard]] int channel_axis() const { return 0; }
  /// Adds a bias of zeros where there is none, as folding of batch norm needs it.
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

/// Rows of a table [vocabulary, width] by their numbers: ids [..] (i32 or i64, or whole floats) -> [..,
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

/// A linear layer with the weight of another layer: y = x W^T + b. W [out, in] is a parameter of both, such
/// as the table of an Embedding (Press and Wolf, arXiv:1608.05859): one parameter under two names, whose
/// gradient is the sum of both. Checkpoints keep it once, under the first.
///
///     Embedding tokens(65, 128);
///     TiedLinear head(tokens.named_parameters().front().second, false);  // [.., 128] -> [.., 65]
///
/// `quantize` replaces it by a QuantLinear, which reads codes of W. The other layer has rules of its own. A
/// table stays in floats except for the target ggml.
class TiedLinear : public Linear {
 public:
  /// With a bias of its own or none. Throws ArgumentError for a weight of other than two axes.
  TiedLinear(const Variable& weight, bool bias);
};

/// Whether several layers of the model have that parameter, so that none may change it for itself.
[[nodiscard]] bool is_tied(const Module& model, const Variable& parameter);

}  // namespace fq
