#include "fakequant/calib/cpu/count.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace fq::cpu {
namespace {

constexpr std::size_t kBlock = 1 << 16;
constexpr std::size_t kLanes = 64;

/// Two tables, so that equal neighbours do not wait for each other; the bin after the last takes what is
/// dropped.
struct Tables {
  std::vector<std::uint32_t> even, odd;
  explicit Tables(std::size_t bins) : even(bins + 1), odd(bins + 1) {}
};

void bins_of(const float* x, std::size_t count, float bins, float top, bool skip_zeros, std::int32_t* out) {
  const auto dropped = static_cast<std::int32_t>(bins);
  for (std::size_t k = 0; k < count; ++k) {
    const float v = std::fabs(x[k]);
    const float position = std::min(v * bins / top, bins - 1.0f);
    out[k] = v > top || (skip_zeros && v == 0.0f) ? dropped : static_cast<std::int32_t>(position);
  }
}

void count_block(std::span<const float> x, float bins, float top, bool skip_zeros, Tables& tables) {
  std::int32_t at[kLanes];
  for (std::size_t i = 0; i < x.size(); i += kLanes) {
    const std::size_t count = std::min(kLanes, x.size() - i);
    bins_of(x.data() + i, count, bins, top, skip_zeros, at);
    for (std::size_t k = 0; k + 1 < count; k += 2) {
      ++tables.even[static_cast<std::size_t>(at[k])];
      ++tables.odd[static_cast<std::size_t>(at[k + 1])];
    }
    if (count % 2 != 0) ++tables.even[static_cast<std::size_t>(at[count - 1])];
  }
}

void flush(Tables& tables, std::span<std::int64_t> counts) {
  for (std::size_t b = 0; b < counts.size(); ++b) counts[b] += std::int64_t{tables.even[b]} + tables.odd[b];
  tables = Tables(counts.size());
}

}  // namespace

void count(std::span<const float> x, float top, bool skip_zeros, std::span<std::int64_t> counts) {
  const auto blocks = static_cast<std::int64_t>((x.size() + kBlock - 1) / kBlock);
#pragma omp parallel if (blocks > 4)
  {
    Tables tables(counts.size());
    std::vector<std::int64_t> own(counts.size());
    std::size_t pending = 0;
#pragma omp for schedule(static) nowait
    for (std::int64_t b = 0; b < blocks; ++b) {
      const std::size_t begin = static_cast<std::size_t>(b) * kBlock,
                        size = std::min(kBlock, x.size() - begin);
      count_block(x.subspan(begin, size), static_cast<float>(counts.size()), top, skip_zeros, tables);
      if ((pending += size) < (std::size_t{1} << 31)) continue;
      flush(tables, own);
      pending = 0;
    }
    flush(tables, own);
#pragma omp critical(fakequant_count)
    for (std::size_t i = 0; i < own.size(); ++i) counts[i] += own[i];
  }
}

}  // namespace fq::cpu
