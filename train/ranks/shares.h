#pragma once

/// Which batches of a loader are a rank's, and of how many gradients a step is made.
///
///     const auto ranks = started_ranks();
///     DataLoader own(data, share_of_rank({.batch_size = 16}, *ranks));

#include <cstdint>
#include <string_view>

#include "fakequant/train/data/loader.h"
#include "fakequant/train/ranks/communicator.h"

namespace fq {

/// The options of a loader that makes the rank's batches: of every `turn` of them, which begin a turn, each
/// rank has one after another has. A turn of 0 is of as many as there are ranks: each has one in turn.
[[nodiscard]] LoaderOptions share_of_rank(LoaderOptions options, const Communicator& ranks,
                                          std::int64_t turn = 0);
/// Those of one that makes all batches.
[[nodiscard]] LoaderOptions all_batches(LoaderOptions options);

/// A step on `batch_size` samples is so many gradients of `micro_batch` samples, which `ranks` processes
/// share out; one for a micro_batch of 0. Throws ArgumentError, opened by `function`, saying what is
/// possible: for a batch that does not divide, fewer parts than ranks, several ranks without a micro_batch.
[[nodiscard]] std::int64_t micro_batches(std::int64_t batch_size, std::int64_t micro_batch, int ranks,
                                         std::string_view function);

namespace detail {

/// Throws ArgumentError, opened by `function`, unless a loader of these options makes the rank's batches.
void check_share(const LoaderOptions& loader, const Communicator& ranks, std::int64_t turn,
                 std::string_view function);
/// A loader of other batches of the same data, for as long as that one lives.
[[nodiscard]] DataLoader loader_beside(const DataLoader& loader, LoaderOptions options);

}  // namespace detail
}  // namespace fq
