#pragma once

/// The two runs of a block whose values are computed again for backward.

#include <utility>
#include <vector>

#include "fakequant/core/context.h"
#include "fakequant/core/tensor.h"

namespace fq::detail {

/// What a block's first run moves, the second one leaves alone: statistics and ranges. Ranges that follow the
/// batches are kept in the order of their use, as another reader may move them between the runs.
class Rerun {
 public:
  [[nodiscard]] bool again() const noexcept { return again_; }
  /// Of the first run.
  void keep(Tensor range) { ranges_.push_back(std::move(range)); }
  void begin_again() noexcept { again_ = true; }
  /// The range that the first run kept at this place.
  [[nodiscard]] Tensor next() { return ranges_.at(next_++); }

 private:
  bool again_ = false;
  std::vector<Tensor> ranges_;
  std::size_t next_ = 0;
};

/// Of the block that this thread runs, or null.
[[nodiscard]] inline Rerun* rerun() noexcept { return context().rerun; }
/// In the second run of a block.
[[nodiscard]] inline bool runs_again() noexcept { return rerun() != nullptr && rerun()->again(); }

}  // namespace fq::detail
