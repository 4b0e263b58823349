#include "fakequant/train/ranks/shares.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "fakequant/core/detail/check.h"

namespace fq {

LoaderOptions share_of_rank(LoaderOptions options, const Communicator& ranks, std::int64_t turn) {
  options.part = ranks.rank();
  options.parts = ranks.size();
  options.turn = turn == 0 ? ranks.size() : turn;
  return options;
}

LoaderOptions all_batches(LoaderOptions options) {
  options.part = 0;
  options.parts = options.turn = 1;
  return options;
}

namespace {

/// Returns the largest number of samples that divides a batch into at least `ranks` equal parts.
std::int64_t example_micro_batch(std::int64_t batch_size, int ranks) {
  std::int64_t samples = std::max<std::int64_t>(1, batch_size / ranks);
  while (samples > 1 && batch_size % samples != 0) --samples;
  return samples;
}

}  // namespace

std::int64_t micro_batches(std::int64_t batch_size, std::int64_t micro_batch, int ranks,
                           std::string_view function) {
  FQ_CHECK(micro_batch >= 0, function, "micro_batch is {}: use 0 (off) or a number of samples", micro_batch);
  FQ_CHECK(
      micro_batch > 0 || ranks == 1, function,
      "{} processes were started: set micro_batch to the samples of a part of batch_size {}, for example {}",
      ranks, batch_size, example_micro_batch(batch_size, ranks));
  if (micro_batch == 0) return 1;
  const std::int64_t parts = batch_size / micro_batch, below = std::max<std::int64_t>(1, parts) * micro_batch;
  FQ_CHECK(batch_size % micro_batch == 0, function,
           "batch_size {} is not a multiple of micro_batch {}: use {} or {}", batch_size, micro_batch, below,
           below + micro_batch);
  FQ_CHECK(ranks <= parts, function,
           "{} processes for the {} parts of batch_size {}: start at most {}, or use a smaller micro_batch",
           ranks, parts, batch_size, parts);
  return parts;
}

namespace detail {

void check_share(const LoaderOptions& loader, const Communicator& ranks, std::int64_t turn,
                 std::string_view function) {
  FQ_CHECK(loader.part == ranks.rank() && loader.parts == ranks.size() && loader.turn == turn, function,
           "rank {} of {} has a loader of part {} of {} in turns of {}: make the loader with "
           "share_of_rank, in turns of {}",
           ranks.rank(), ranks.size(), loader.part, loader.parts, loader.turn, turn);
}

DataLoader same_data_loader(const DataLoader& loader, LoaderOptions options) {
  // Aliasing constructor without an owner: the data set belongs to `loader`, which outlives the copy.
  return {std::shared_ptr<const Dataset>(std::shared_ptr<void>(), &loader.data()), std::move(options)};
}

}  // namespace detail
}  // namespace fq
