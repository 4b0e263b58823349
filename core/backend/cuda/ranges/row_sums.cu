#include <cmath>

#include "fakequant/core/backend/cuda/ranges/row_parts.cuh"
#include "fakequant/core/backend/cuda/ranges/row_sums.h"

namespace fq::cuda {
namespace {

/// A block a part: `lanes` sums of every so-manieth element, added in their order.
template <int lanes, bool magnitudes>
struct SumPart {
  static constexpr int phases = 3, width = magnitudes ? 2 : 1;
  struct Shared {
    float x[RowParts::size];
    double sums[lanes];
    int zeros[lanes];
  };
  RowParts parts;
  bool skip_zeros;
  std::int64_t first;
  double* out;

  FQ_HD void add_lane(int lane, int count, Shared& shared) const {
    double sum = 0;
    int zeros = 0;
    for (int i = lane; i < count; i += lanes) {
      const auto v = static_cast<double>(shared.x[i]);
      sum += magnitudes ? std::fabs(v) : v;
      zeros += shared.x[i] == 0 ? 1 : 0;
    }
    shared.sums[lane] = sum;
    shared.zeros[lane] = zeros;
  }

  FQ_HD void add_lanes(std::int64_t part, int count, const Shared& shared) const {
    double sum = 0;
    for (int lane = 0; lane < lanes; ++lane) {
      sum += shared.sums[lane];
      if (skip_zeros) count -= shared.zeros[lane];
    }
    out[part * width] = sum;
    if (magnitudes) out[part * width + 1] = count;
  }

  template <int Phase>
  FQ_HD void phase(Thread t, Shared& shared) const {
    const std::int64_t part = first + t.block;
    const int count = parts.count(part);
    if (Phase == 0)
      for (int i = t.thread; i < count; i += block_threads) shared.x[i] = parts.first(part)[i];
    if (Phase == 1 && t.thread < lanes) add_lane(t.thread, count, shared);
    if (Phase == 2 && t.thread == 0) add_lanes(t.block, count, shared);
  }
};

template <int lanes, bool magnitudes>
void add(const cpu::Rows& rows, bool skip_zeros, std::vector<double>& sums) {
  using Sum = SumPart<lanes, magnitudes>;
  add_parts(rows, Sum::width, sums, [&](std::int64_t first, std::int64_t count, double* out) {
    for_blocks(rows.values.device(), count, Sum{RowParts(rows), skip_zeros, first, out});
  });
}

}  // namespace

void add_magnitudes(const cpu::Rows& rows, bool skip_zeros, std::vector<double>& sums) {
  add<8, true>(rows, skip_zeros, sums);
}

void add_values(const cpu::Rows& rows, std::vector<double>& sums) { add<1, false>(rows, false, sums); }

}  // namespace fq::cuda
