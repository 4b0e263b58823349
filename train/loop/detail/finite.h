#pragma once

/// Search for NaN and infinity.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fakequant/core/io/state_dict.h"
#include "fakequant/train/data/dataset.h"

namespace fq::detail {

/// An element that is NaN or infinite.
struct NotFinite {
  std::string name;        ///< name of the tensor
  std::int64_t index = 0;  ///< row-major index
  double value = 0;

  /// "parameters/fc.weight has nan at element 3".
  [[nodiscard]] std::string text() const;
};

/// Returns the first NaN or infinity in tensors of f32, f64, f16 and bf16, on any device. Needs one pass if
/// there is none. Skips the state of calibrators (`../calibrator/..`), whose initial bounds may be infinite.
[[nodiscard]] std::optional<NotFinite> find_not_finite(const std::vector<StateDict::Entry>& tensors);

/// Returns "x of sample 17 of the data has nan: leave that sample out, or give it a value" for the first
/// sample with NaN or infinity in x or y. Returns an empty text if all samples are finite. The index of a
/// sample that augmentation changed is its index in the batch.
[[nodiscard]] std::string not_finite_sample(const Batch& batch);

}  // namespace fq::detail
