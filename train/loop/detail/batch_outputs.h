#pragma once

/// The one loop over what a model answers, by one process or several.

#include <functional>

#include "fakequant/layers/modules/module.h"
#include "fakequant/train/data/loader.h"
#include "fakequant/train/ranks/communicator.h"

namespace fq::detail {

/// What a batch was answered, and its labels, undefined without. False ends the epoch.
using VisitOutput = std::function<bool(const Tensor& output, const Tensor& labels)>;

/// Calls `visit` with each batch of epoch 0, in their order and in evaluation mode, until it returns false on
/// any rank. Returns whether it never did. With several `ranks` all of them make the call; each runs its own
/// batches, and visits those of all.
bool for_each_output(Module& model, DataLoader& loader, Communicator* ranks, const VisitOutput& visit);

}  // namespace fq::detail
