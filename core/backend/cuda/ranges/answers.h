#pragma once

/// Which class scores are largest at, on a device. As core/backend/cpu/ranges/answers.h has it.

#include "fakequant/core/tensor.h"

namespace fq::cuda {

void answers(const Tensor& scores, Tensor& out);

}  // namespace fq::cuda
