#pragma once

/// quantize_weights(model): the codes of all weights at once.

namespace fq {

class Module;

/// Quantizes the weights whose codes are not kept yet, as the quantized layers would in their next call; on a
/// GPU in one launch. They keep the codes until the weight or its grid changes.
void quantize_weights(Module& model);

}  // namespace fq
