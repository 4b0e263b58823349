#pragma once

/// Several linear layers of one input as one product.

#include <mutex>
#include <vector>

#include "fakequant/core/quantized.h"
#include "fakequant/core/variable.h"
#include "fakequant/layers/modules/linear.h"

namespace fq::detail {

/// Multiplies one input by the weights of several quantized layers at once, on a GPU. The layers keep their
/// parameters and quantizers. Each sum of codes is the same as in its own layer, so codes and values have the
/// same bits. The gradient of the input is one sum over all layers, in another order than the sum of their
/// gradients.
///
/// Safe to use from several threads.
class JoinedLinears {
 public:
  /// Returns the outputs of all layers side by side, [.., sum of channels]. Returns an undefined variable if
  /// the layers must run by themselves: on a CPU, in a trace, with floats, or if their quantizers differ in
  /// more than the ranges of the weights, observe, or move their ranges. A layer may be null.
  [[nodiscard]] Variable products(const Variable& x, const std::vector<const Linear*>& layers) const;

 private:
  [[nodiscard]] Grid joined_grid(const std::vector<QuantizedTensor>& weights) const;

  mutable std::mutex mutex_;  // guards the cached grid
  mutable std::vector<Tensor> scales_;
  mutable Grid grid_;
};

}  // namespace fq::detail
