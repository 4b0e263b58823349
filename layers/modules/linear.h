#pragma once

/// Layers that are a matrix: fully connected, and embedding.
///
///     Linear fc(784, 10);
///     Variable logits = fc(images);  // [N, 784] -> [N, 10]

#include "fakequant/layers/modules/module.h"

namespace fq {

/// y = x W^T + b. x [.., in_features] -> [.., out_features]; weight [out, in], bias [out].
/// Initialised uniformly within 1/sqrt(in_features), from this thread's random stream.
class Linear : public Module {
 public:
  /// Throws ArgumentError for sizes below 1.
  Linear(std::int64_t in_features, std::int64_t out_features, bool bias = true);

  [[nodiscard]] std::string type() const override { return "linear"; }
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] const Variable& weight() const noexcept { return weight_; }
  /// Undefined without a bias.
  [[nodiscard]] const Variable& bias() const noexcept { return bias_; }
  /// The axis of the weight along which output channels lie.
  [[nodiscard]] int channel_axis() const { return 0; }
  /// Adds a bias of zeros where there is none (batch-norm folding).
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

/// Rows of a table [vocabulary, width]: ids [..] (i32 or i64, or whole floats) -> [.., width].
class Embedding : public Module {
 public:
  /// The table is initialised uniformly within 1/sqrt(width). Throws ArgumentError for sizes below 1.
  Embedding(std::int64_t vocabulary, std::int64_t width);
  [[nodiscard]] std::string type() const override { return "embedding"; }
  [[nodiscard]] std::string describe() const override;

 protected:
  Variable forward(const Variable& x) override;
  using Module::forward;

 private:
  Variable weight_;
};

}  // namespace fq
