#pragma once

/// Data sets as the flags name them.

#include <memory>
#include <string>

#include "fakequant/cli/flags.h"
#include "fakequant/train/data/augment.h"
#include "fakequant/train/data/dataset.h"

namespace fq::cli {

/// One group of the file that --data names, and no other. `classes` bounds the labels; 0: as the file says.
[[nodiscard]] std::shared_ptr<const Dataset> open_data(const Flags& flags, const std::string& group,
                                                       std::int64_t classes = 0, bool labels = true);
/// "shift=0.6,rotate=7.5,scale=0.1,shear=0.1,cutout=2,flip=1". Throws ArgumentError naming the nearest key.
[[nodiscard]] AugmentOptions read_augment(const Flags& flags);
/// The first `count` samples in the order of a permutation by `seed`; all when there are not more.
[[nodiscard]] std::shared_ptr<const Dataset> some_samples(std::shared_ptr<const Dataset> data,
                                                          std::int64_t count, std::uint64_t seed);

}  // namespace fq::cli
