#pragma once

/// A few samples of a data set, such as ranges are calibrated on: the same ones every time.

#include <cstdint>
#include <memory>

#include "fakequant/train/data/dataset.h"

namespace fq {

/// `count` samples behind the first `skip` in the order of a permutation by `seed`, sorted; all that are left
/// when there are not more. Throws ArgumentError when none is left.
[[nodiscard]] std::shared_ptr<const Dataset> some_samples(std::shared_ptr<const Dataset> data,
                                                          std::int64_t count, std::uint64_t seed,
                                                          std::int64_t skip = 0);

}  // namespace fq
