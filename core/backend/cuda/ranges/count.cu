#include <bit>

#include "fakequant/core/backend/cuda/loops/atomics.cuh"
#include "fakequant/core/backend/cuda/loops/groups.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/core/numerics/detail/inverse_formulas.h"

namespace fq::cuda {
namespace {

/// A bin rule, with the values that are the same for all elements.
struct Bins {
  fq::detail::BinRule rule;
  float lowest, last, dropped, inverse, most;

  Bins(const fq::detail::BinRule& own, int bins)
      : rule(own),
        lowest(own.lowest()),
        last(static_cast<float>(bins - 1)),
        dropped(static_cast<float>(bins)),
        inverse(1.0f / own.divisor),
        most(dropped * own.divisor) {}

  [[nodiscard]] bool uses_inverse() const { return scalar::divides_exactly(rule.divisor); }
  template <bool inverted>
  [[nodiscard]] FQ_HD int of(float v) const {
    if constexpr (inverted)
      return static_cast<int>(scalar::bin_position_by_inverse(v, rule.factor, rule.divisor, inverse, most,
                                                              lowest, rule.top, last, dropped));
    else
      return static_cast<int>(
          scalar::bin_position(v, rule.factor, rule.divisor, lowest, rule.top, last, dropped));
  }
};

/// Counts in a table per block. The table has several copies, so that equal values do not wait for each
/// other. Bins that do not fit into the table, the highest ones, are counted in global memory. Each thread
/// counts bin 0, for example zeros, in a register. All other elements are added to a dummy counter: a branch
/// around the addition costs more, because the compiler recomputes the address of the table after it.
template <bool inverted>
struct CountBins {
  static constexpr int phases = 3, counters = 8192, most_copies = 8, pack = pack_size<float>, packs = 2;
  static constexpr std::int64_t tile = std::int64_t{block_threads} * pack * packs;
  struct Shared {
    // 32 dummy counters, one per lane of a warp, so that dummy additions do not wait for each other.
    unsigned table[counters + 32];
  };
  const float* x;
  std::int64_t elements;
  Bins rule;
  int bins, copies, table_bins;  ///< copies: a power of two; table_bins: number of bins in a table
  unsigned long long* counts;

  FQ_HD void add(float v, int thread, unsigned& zeros, Shared& shared) const {
    const int at = rule.of<inverted>(v), own = at * copies + (thread & (copies - 1));
    // One unsigned comparison for 1 <= at < table_bins: bin 0 wraps around to a large number.
    const bool in_table = static_cast<unsigned>(at - 1) < static_cast<unsigned>(table_bins - 1);
    atomic_add(shared.table[in_table ? own : counters + thread % 32], 1u);
    zeros += at == 0 ? 1 : 0;
    if (table_bins < bins && at >= table_bins && at < bins) atomic_add<unsigned long long>(counts[at], 1);
  }
  /// Adds `packs` packs. Their distance is one pack per thread of the block.
  FQ_HD void add_tile(std::int64_t begin, Thread t, unsigned& zeros, Shared& shared) const {
    const std::int64_t first = begin + std::int64_t{t.thread} * pack;
    float v[packs][pack];
    if (begin + tile <= elements) {
      for (int k = 0; k < packs; ++k) load_group(x + first + k * block_threads * pack, pack, v[k]);
      for (int k = 0; k < packs; ++k)
        for (int j = 0; j < pack; ++j) add(v[k][j], t.thread, zeros, shared);
    } else {
      for (std::int64_t i = begin + t.thread; i < elements; i += block_threads)
        add(x[i], t.thread, zeros, shared);
    }
  }

  template <int Phase>
  FQ_HD void phase(Thread t, Shared& shared) const {
    if (Phase == 0)
      for (int i = t.thread; i < counters; i += block_threads) shared.table[i] = 0;
    if (Phase == 1) {
      unsigned zeros = 0;
      for (std::int64_t begin = t.block * tile; begin < elements; begin += t.blocks * tile)
        add_tile(begin, t, zeros, shared);
      if (zeros != 0) atomic_add(shared.table[t.thread & (copies - 1)], zeros);
    }
    // Integer counts do not depend on the order of the atomic additions.
    if (Phase == 2)
      for (int at = t.thread; at < table_bins; at += block_threads) {
        unsigned long long sum = 0;
        for (int copy = 0; copy < copies; ++copy) sum += shared.table[at * copies + copy];
        if (sum != 0) atomic_add(counts[at], sum);
      }
  }
};

template <bool inverted>
void count_bins(const Tensor& x, const Bins& rule, int bins, Tensor& sums) {
  using Body = CountBins<inverted>;
  // Few large blocks: each block has to clear its table and to add it to the global counts.
  constexpr std::int64_t tiles_a_block = 8, blocks_a_processor = 6;
  const auto room = static_cast<unsigned>(Body::counters / std::max(bins, 1));
  const int copies = std::clamp(static_cast<int>(std::bit_floor(room)), 1, Body::most_copies);
  const std::int64_t items = x.numel() / (Body::tile * tiles_a_block) + 1;
  launch_blocks(x.device(), std::min(items, blocks_a_processor * processors(x.device())),
                Body{device_data<float>(x), x.numel(), rule, bins, copies,
                     std::min(bins, Body::counters / copies), mutable_device_data<unsigned long long>(sums)});
}

}  // namespace

void count(const Tensor& x, const fq::detail::BinRule& rule, std::span<std::int64_t> counts) {
  Tensor sums = Tensor::zeros({static_cast<std::int64_t>(counts.size())}, DType::i64, x.device());
  const auto bins = static_cast<int>(counts.size());
  const Bins own(rule, bins);
  own.uses_inverse() ? count_bins<true>(x, own, bins, sums) : count_bins<false>(x, own, bins, sums);
  // Waits for the device: the calibrator needs the counts on the host.
  const auto added = sums.to_vector<std::int64_t>();
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] += added[i];
}

}  // namespace fq::cuda
