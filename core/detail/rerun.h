#pragma once

/// The two runs of a checkpointed block, whose values are recomputed for backward.

#include <utility>
#include <vector>

#include "fakequant/core/context.h"
#include "fakequant/core/tensor.h"

namespace fq::detail {

/// State that the first run of a block changes and the second run must not: statistics and ranges. Ranges
/// that follow the batches are stored in order of use, because another reader may change them between the
/// runs.
class Rerun {
 public:
  [[nodiscard]] bool again() const noexcept { return again_; }
  /// Stores a range. For the first run.
  void keep(Tensor range) { ranges_.push_back(std::move(range)); }
  void begin_again() noexcept { again_ = true; }
  /// Returns the range that the first run stored at the current position.
  [[nodiscard]] Tensor next() { return ranges_.at(next_++); }

 private:
  bool again_ = false;
  std::vector<Tensor> ranges_;
  std::size_t next_ = 0;
};

/// Returns the state of the block that this thread runs, or null.
[[nodiscard]] inline Rerun* rerun() noexcept { return context().rerun; }
/// Whether this is the second run of a block.
[[nodiscard]] inline bool runs_again() noexcept { return rerun() != nullptr && rerun()->again(); }

}  // namespace fq::detail
