#pragma once

/// A linear layer with the weight of another layer.
///
///     Embedding tokens(65, 128);
///     TiedLinear head(tokens.named_parameters().front().second, false);  // [.., 128] -> [.., 65]

#include "fakequant/layers/modules/linear.h"

namespace fq {

/// y = x W^T + b, W [out, in] being a parameter of another layer too, such as the table of an Embedding
/// (Press and Wolf, arXiv:1608.05859): one parameter under two names, whose gradient is the sum of both.
/// Checkpoints keep it once, under the first.
///
/// `quantize` makes a QuantLinear of it: the product reads codes of W, the other layer what it reads by its
/// own rules; a table stays floats but for the target ggml.
class TiedLinear : public Linear {
 public:
  /// With a bias of its own or none. Throws ArgumentError for a weight of other than two axes.
  TiedLinear(const Variable& weight, bool bias);
};

/// Whether several layers of the model have that parameter, so that none may change it for itself.
[[nodiscard]] bool is_tied(const Module& model, const Variable& parameter);

}  // namespace fq
