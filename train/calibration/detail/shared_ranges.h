#pragma once

/// Calibration that several processes share out.

#include <string_view>
#include <vector>

#include "fakequant/layers/quantize.h"
#include "fakequant/train/ranks/communicator.h"

namespace fq::detail {

/// The first method of those quantizers' calibrators whose result depends on which batches are seen together,
/// so that each rank has to see all of them; empty when there is none.
[[nodiscard]] std::string_view method_of_one_process(const std::vector<TensorQuantizer*>& quantizers);

/// Called by all ranks behind a pass over their shares: what one of them collected, all have then.
void merge_over_ranks(Module& model, Communicator& ranks);

}  // namespace fq::detail
