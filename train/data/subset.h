#pragma once

/// Parts of a data set, chosen by a seed: samples for calibration, and a held-out validation split.
///
///     const auto samples = some_samples(data, 512, 0);
///     const auto [train, validation] = hold_out(data, 0.1, 1);

#include <cstdint>
#include <memory>
#include <vector>

#include "fakequant/train/data/dataset.h"

namespace fq {

/// Returns `count` samples after the first `skip` of a permutation by `seed`, in ascending order. Returns all
/// remaining samples if there are fewer. Throws ArgumentError if no sample remains.
[[nodiscard]] std::shared_ptr<const Dataset> some_samples(std::shared_ptr<const Dataset> data,
                                                          std::int64_t count, std::uint64_t seed,
                                                          std::int64_t skip = 0);

/// Two parts of a data set. They keep the data set alive.
struct HeldOut {
  std::shared_ptr<const Dataset> train, validation;
};

/// Returns the same parts as `split_validation`, with memory independent of the number of samples. Throws the
/// same errors.
[[nodiscard]] HeldOut hold_out(const std::shared_ptr<const Dataset>& data, double fraction,
                               std::uint64_t seed);

/// Returns at most `most` of the held-out samples, evenly spaced and in ascending order. Throws the same
/// errors.
[[nodiscard]] std::vector<std::int64_t> some_held_out(std::int64_t size, double fraction, std::uint64_t seed,
                                                      std::int64_t most);

}  // namespace fq
