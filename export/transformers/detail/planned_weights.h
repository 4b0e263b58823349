#pragma once

/// The tensors of a file in the places that a plan has for them.

#include <string>
#include <vector>

#include "fakequant/core/io/state_dict.h"
#include "fakequant/export/safetensors/weights.h"
#include "fakequant/export/transformers/detail/plan.h"

namespace fq::detail {

/// `parameters/<path>`, f32. `path` is a safetensors file or an index. Throws FileError: one that names all
/// tensors that are missing, of other shapes or types or left over; for values that are NaN or infinite; and
/// as WeightSource.
[[nodiscard]] StateDict planned_weights(const TransformerPlan& plan, const std::string& path,
                                        const std::vector<WeightRename>& renames);

}  // namespace fq::detail
