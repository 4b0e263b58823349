#pragma once

/// Whether numbers are still numbers.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fakequant/core/io/state_dict.h"
#include "fakequant/train/data/dataset.h"

namespace fq::detail {

/// An element that is NaN or infinite.
struct NotFinite {
  std::string name;        ///< of the tensor
  std::int64_t index = 0;  ///< row-major
  double value = 0;

  /// "parameters/fc.weight has nan at element 3".
  [[nodiscard]] std::string text() const;
};

/// The first one of the tensors of f32, f64, f16 and bf16, on any device; in one pass over them when there is
/// none. What calibrators have collected (`../calibrator/..`) is passed over: the bounds that they begin with
/// may be infinite.
[[nodiscard]] std::optional<NotFinite> find_not_finite(const std::vector<StateDict::Entry>& tensors);

/// "x of sample 17 of the data has nan: leave that sample out, or give it a value" of the first sample of a
/// batch that has NaN or infinity in x or y; empty where none has. Samples that augmentation changed are
/// counted within the batch.
[[nodiscard]] std::string not_finite_sample(const Batch& batch);

}  // namespace fq::detail
