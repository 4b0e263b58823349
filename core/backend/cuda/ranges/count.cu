#include "fakequant/core/backend/cuda/loops/atomics.cuh"
#include "fakequant/core/backend/cuda/loops/groups.cuh"
#include "fakequant/core/backend/cuda/ranges/count.h"
#include "fakequant/core/numerics/detail/histogram_formulas.h"

namespace fq::cuda {
namespace {

/// Each block counts in a table of its own, in copies so that equal values do not wait for each other; bins
/// that have no room there, the highest ones, are counted in memory at once.
struct CountBins {
  static constexpr int phases = 3, counters = 8192, most_copies = 8;
  struct Shared {
    unsigned table[counters];
  };
  const float* x;
  std::int64_t elements;
  cpu::BinRule rule;
  float lowest;
  int bins, copies;
  unsigned long long* counts;

  [[nodiscard]] FQ_HD int held() const { return bins < counters / copies ? bins : counters / copies; }
  [[nodiscard]] FQ_HD int bin(float v) const {
    const auto last = static_cast<float>(bins - 1), dropped = static_cast<float>(bins);
    return static_cast<int>(
        scalar::bin_position(v, rule.factor, rule.divisor, lowest, rule.top, last, dropped));
  }
  FQ_HD void add(int at, unsigned number, int copy, Shared& shared) const {
    if (at >= bins) return;
    if (at < held())
      atomic_add(shared.table[at * copies + copy], number);
    else
      atomic_add<unsigned long long>(counts[at], number);
  }
  /// Runs of one bin, as zeros are, are added at once.
  FQ_HD void add_group(std::int64_t first, int size, int copy, Shared& shared) const {
    float v[group_size];
    load_group(x + first, size, v);
    int before = bin(v[0]);
    unsigned run = 0;
    for (int j = 0; j < group_size; ++j) {
      if (j >= size) break;
      const int next = bin(v[j]);
      if (next != before) {
        add(before, run, copy, shared);
        before = next;
        run = 0;
      }
      ++run;
    }
    add(before, run, copy, shared);
  }

  template <int Phase>
  FQ_HD void phase(Thread t, Shared& shared) const {
    if (Phase == 0)
      for (int i = t.thread; i < counters; i += block_threads) shared.table[i] = 0;
    if (Phase == 1)
      for (std::int64_t g = t.first(); g * group_size < elements; g += t.step()) {
        const std::int64_t left = elements - g * group_size;
        add_group(g * group_size, left < group_size ? static_cast<int>(left) : group_size, t.thread % copies,
                  shared);
      }
    if (Phase == 2)
      for (int at = t.thread; at < held(); at += block_threads) {
        unsigned long long sum = 0;
        for (int copy = 0; copy < copies; ++copy) sum += shared.table[at * copies + copy];
        if (sum != 0) atomic_add(counts[at], sum);
      }
  }
};

}  // namespace

void count(const Tensor& x, const cpu::BinRule& rule, std::span<std::int64_t> counts) {
  constexpr std::int64_t groups_a_thread = 16, blocks_a_processor = 6;
  Tensor sums = Tensor::zeros({static_cast<std::int64_t>(counts.size())}, DType::i64, x.device());
  const auto bins = static_cast<int>(counts.size());
  const int copies = std::clamp(CountBins::counters / std::max(bins, 1), 1, CountBins::most_copies);
  const std::int64_t items = x.numel() / (group_size * groups_a_thread) + 1;
  for_blocks(x.device(), grid_blocks(items, blocks_a_processor * processors(x.device())),
             CountBins{static_cast<const float*>(x.raw()), x.numel(), rule, rule.lowest(), bins, copies,
                       reinterpret_cast<unsigned long long*>(sums.mutable_raw())});
  const auto added = sums.to_vector<std::int64_t>();
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] += added[i];
}

}  // namespace fq::cuda
