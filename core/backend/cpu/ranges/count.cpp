#include <algorithm>
#include <vector>

#include "fakequant/core/backend/cpu/ranges/range_kernels.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/detail/threads.h"

namespace fq::cpu {
namespace {

constexpr std::size_t kCounted = 1 << 15;
static_assert(kCounted <= kFullTables);

// Tables of 16 bits stay in the first-level cache for 2048 bins. They are added to 64-bit counts before a
// counter can overflow.
void flush(std::vector<std::uint16_t>& tables, std::span<std::int64_t> counts) {
#pragma omp critical(fakequant_count)
  for (std::size_t b = 0; b < counts.size(); ++b)
    for (std::size_t k = 0; k < kTables; ++k) counts[b] += tables[b * kTables + k];
  std::ranges::fill(tables, std::uint16_t{0});
}

}  // namespace

void count(const Tensor& t, const BinRule& rule, std::span<std::int64_t> counts) {
  const std::span x(t.data<float>(t.layout()), static_cast<std::size_t>(t.numel()));
  const auto blocks = static_cast<std::int64_t>((x.size() + kCounted - 1) / kCounted);
  detail::FirstError error;
#pragma omp parallel if (blocks > 8)
  {
    // Own tables per thread: counters have no contention, and integer counts do not depend on the threads.
    std::vector<std::uint16_t> tables;
    const bool made = error.keep([&] { tables.resize((counts.size() + 1) * kTables); });
    std::size_t pending = 0;
    const auto add = [&](std::int64_t b) {
      const std::size_t begin = static_cast<std::size_t>(b) * kCounted;
      const std::size_t size = std::min(kCounted, x.size() - begin);
      if (pending + size > kFullTables) {
        flush(tables, counts);
        pending = 0;
      }
      count_into(x.data() + begin, size, rule, counts.size(), tables.data());
      pending += size;
    };
#pragma omp for schedule(static) nowait
    for (std::int64_t b = 0; b < blocks; ++b)
      if (made) add(b);
    if (made) flush(tables, counts);
  }
  error.rethrow();
}

}  // namespace fq::cpu
