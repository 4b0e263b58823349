#pragma once

/// The parameters of a model as files have them.

#include <string>
#include <utility>
#include <vector>

#include "fakequant/core/variable.h"

namespace fq {
class Module;
}

namespace fq::detail {

/// `named_parameters`, but a parameter that several layers have, as the weight of a tied one, under its first
/// name alone. Ranges stay under every name of their quantizer, as the quantizers of files do.
[[nodiscard]] std::vector<std::pair<std::string, Variable>> saved_parameters(const Module& model);

}  // namespace fq::detail
