#pragma once

/// Samples held out of training, however many there are.
///
///     const auto [train, validation] = hold_out(data, 0.1, 1);

#include <cstdint>
#include <memory>
#include <vector>

#include "fakequant/train/data/dataset.h"

namespace fq {

/// Two parts of a data set, which they keep alive.
struct HeldOut {
  std::shared_ptr<const Dataset> train, validation;
};

/// The parts that `split_validation` lists, without a list: memory does not grow with the samples. Throws as
/// it does.
[[nodiscard]] HeldOut hold_out(const std::shared_ptr<const Dataset>& data, double fraction,
                               std::uint64_t seed);

/// At most `most` of the samples that are held out, spread evenly over them, ascending. Throws likewise.
[[nodiscard]] std::vector<std::int64_t> some_held_out(std::int64_t size, double fraction, std::uint64_t seed,
                                                      std::int64_t most);

}  // namespace fq
