#pragma once

/// Statistics of batch norms, made anew of weights as they stand.
///
///     reestimate_batch_norm(model, loader, 50);  // before it is saved

#include <cstdint>

#include "fakequant/train/data/loader.h"

namespace fq {

class Module;

/// The batch norms of the model that are not frozen, whose statistics training moves.
[[nodiscard]] std::int64_t live_batch_norms(Module& model);

/// Replaces the running statistics of these by the means of those of the next `batches` batches of the
/// loader, each weighing the same (PyTorch's momentum None). Running statistics lag behind weights that jump
/// between codes, and of few bits that costs accuracy (Nagel et al. 2022). All else is in evaluation mode,
/// quantizers as they are. Returns how many norms there are.
///
/// Throws ArgumentError for less than one batch, and more than an epoch has.
std::int64_t reestimate_batch_norm(Module& model, DataLoader& data, std::int64_t batches);

}  // namespace fq
