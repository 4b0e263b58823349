#pragma once

/// Division of a loader's batches among ranks, and of a step into micro-batches.
///
///     const auto ranks = started_ranks();
///     DataLoader own(data, share_of_rank({.batch_size = 16}, *ranks));

#include <cstdint>
#include <string_view>

#include "fakequant/train/data/loader.h"
#include "fakequant/train/ranks/communicator.h"

namespace fq {

/// Returns the options of a loader that makes the batches of this rank. Batches are divided into turns of
/// `turn` batches. Rank r makes the batches r, r + size, r + 2 size, .. of each turn. A turn of 0 has one
/// batch per rank.
[[nodiscard]] LoaderOptions share_of_rank(LoaderOptions options, const Communicator& ranks,
                                          std::int64_t turn = 0);
/// Returns the options of a loader that makes all batches.
[[nodiscard]] LoaderOptions all_batches(LoaderOptions options);

/// Returns the number of micro-batches of `micro_batch` samples in a step of `batch_size` samples, which
/// `ranks` processes share; 1 if micro_batch is 0. Throws ArgumentError, with `function` as prefix and the
/// allowed values, for a batch that does not divide, fewer parts than ranks, or several ranks without a
/// micro_batch.
[[nodiscard]] std::int64_t micro_batches(std::int64_t batch_size, std::int64_t micro_batch, int ranks,
                                         std::string_view function);

namespace detail {

/// Throws ArgumentError, with `function` as prefix, unless a loader with these options makes the rank's
/// batches.
void check_share(const LoaderOptions& loader, const Communicator& ranks, std::int64_t turn,
                 std::string_view function);
/// Returns a loader of other batches of the same data. The data of `loader` must outlive it.
[[nodiscard]] DataLoader same_data_loader(const DataLoader& loader, LoaderOptions options);

}  // namespace detail
}  // namespace fq
