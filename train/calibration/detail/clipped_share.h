#pragma once

/// How much of what activation quantizers are given lies beyond their ranges.

#include <string>
#include <utility>
#include <vector>

#include "fakequant/core/tensor.h"

namespace fq {
class Module;
}

namespace fq::detail {

/// Of each quantizer of activations that is on and has a range of its own (not one of each input), by name,
/// in the order in which the model comes to them: the share, 0 to 1, of the values given to it that are
/// beyond its largest range when the model runs on `x` in evaluation mode. Of unsigned ranges only what is
/// above counts. The model stays as it was; its ranges must be known, and `x` is on its device.
[[nodiscard]] std::vector<std::pair<std::string, double>> clipped_shares(Module& model, const Tensor& x);

}  // namespace fq::detail
