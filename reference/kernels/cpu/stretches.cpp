#include "fakequant/reference/kernels/cpu/stretches.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "fakequant/core/backend/cpu/vector/cache.h"
#include "fakequant/core/blocks/detail/walk.h"

namespace fq::cpu {
namespace {

constexpr std::int64_t kStretch = 4096;         // elements of a call with several parameters
constexpr std::int64_t kLongRow = 512;          // elements worth a call of their own
constexpr std::int64_t kLongStretch = 1 << 14;  // elements of a call with rows of own parameters
constexpr std::int64_t kRepeated = 1 << 15;     // elements with parameters of their own that are kept

// A tensor and its results. part() returns the stretch of elements [begin, end).
struct Whole {
  const Tensor& x;
  Tensor& y;
  Tensor* mask;
  bool stream = beyond_cache(y.nbytes());
  const std::byte* source = static_cast<const std::byte*>(x.raw());
  std::byte* target = static_cast<std::byte*>(y.mutable_raw());
  std::uint8_t* bits = mask == nullptr ? nullptr : static_cast<std::uint8_t*>(mask->mutable_raw());

  [[nodiscard]] Stretch part(std::int64_t begin, std::int64_t end, std::int64_t shared) const {
    const std::int64_t offset = byte_size(x.dtype(), begin);
    // `begin` is a multiple of 8: each stretch owns whole bytes of the mask, so threads never share one.
    std::uint8_t* to = bits == nullptr ? nullptr : bits + begin / 8;
    return {source + offset, target + offset, to, end - begin, shared, x.dtype(), stream};
  }
};

/// Calls f(begin, end) for chunks of `length` elements, a multiple of 8, in parallel.
template <class F>
void run_chunks(const Whole& whole, std::int64_t length, F&& f) {
  const std::int64_t count = whole.x.numel(), chunks = (count + length - 1) / length;
#pragma omp parallel if (count > parallel_stretch)
  {
#pragma omp for schedule(static)
    for (std::int64_t c = 0; c < chunks; ++c) f(c * length, std::min(count, (c + 1) * length));
    // Each thread flushes its own streaming stores before the results are read.
    if (whole.stream) flush_writes();
  }
}

// A tensor with several parameters. `walk` maps rows of elements with one stride to positions in `columns`.
struct Broadcast {
  const Whole& whole;
  const Walk& walk;
  const Columns& columns;
  const RunStretch& run;

  [[nodiscard]] Columns from(std::int64_t k) const {
    return columns.map([&](const float* column) { return column == nullptr ? nullptr : column + k; });
  }
  void rows_of_one_parameter() const;
  void rows_of_own_parameters() const;
  void several_rows(bool dense) const;
  void repeated() const;
  void expanded() const;
  void expand(std::int64_t begin, std::int64_t end, const float* column, float* to) const;
};

// Long rows with one parameter each: a row is one stretch or several.
void Broadcast::rows_of_one_parameter() const {
  const std::int64_t inner = walk.inner();
  run_chunks(whole, kStretch, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end;) {
      const std::int64_t row = i / inner, stop = std::min(end, (row + 1) * inner);
      run(whole.part(i, stop, stop - i), from(walk.offset(1, row)));
      i = stop;
    }
  });
}

// Rows whose elements have consecutive parameters. If all rows have the same ones, a stretch takes several
// rows and `period` lets the kernel start again.
void Broadcast::rows_of_own_parameters() const {
  const std::int64_t inner = walk.inner(), together = walk.period(1) == inner ? kLongStretch / inner : 1;
  const std::int64_t length = inner <= kLongStretch ? together * inner : kStretch;
  run_chunks(whole, length, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end;) {
      const std::int64_t row = i / inner, stop = together > 1 ? end : std::min(end, (row + 1) * inner);
      Stretch part = whole.part(i, stop, 0);
      part.period = inner;
      run(part, from(walk.offset(1, row) + i - row * inner));
      i = stop;
    }
  });
}

// Short rows of whole vector groups, several per stretch. `dense`: row r has parameter r. Otherwise the
// parameters of the stretch are gathered into buffers, one per column.
void Broadcast::several_rows(bool dense) const {
  const std::int64_t inner = walk.inner(), length = kStretch / inner * inner;
  run_chunks(whole, length, [&](std::int64_t begin, std::int64_t end) {
    const Stretch part = whole.part(begin, end, inner);
    if (dense) return run(part, from(begin / inner));
    std::array<std::array<float, kStretch / 8>, 4> buffers;
    std::size_t next = 0;
    run(part, columns.map([&](const float* column) -> const float* {
      if (column == nullptr) return nullptr;
      float* to = buffers[next++].data();
      for (std::int64_t i = begin; i < end; i += inner) *to++ = column[walk.offset(1, i / inner)];
      return buffers[next - 1].data();
    }));
  });
}

// Writes the parameter of each element of [begin, end) to `to`.
void Broadcast::expand(std::int64_t begin, std::int64_t end, const float* column, float* to) const {
  const std::int64_t inner = walk.inner(), step = walk.step(1);
  for (std::int64_t i = begin; i < end;) {
    const std::int64_t row = i / inner, stop = std::min(end, (row + 1) * inner);
    const float* p = column + walk.offset(1, row) + (i - row * inner) * step;
    for (; i < stop; ++i, p += step) *to++ = *p;
  }
}

// Parameters that repeat after a short period: expanded once for one period and a chunk, so that a chunk that
// starts anywhere in the period reads consecutive memory.
void Broadcast::repeated() const {
  const std::int64_t period = walk.period(1), count = period + std::min(kStretch, padded(whole.x.numel()));
  std::vector<float> buffer(static_cast<std::size_t>(4 * (count + column_skew)));
  float* to = buffer.data();
  const Columns all = columns.map([&](const float* column) -> const float* {
    if (column == nullptr) return nullptr;
    expand(0, period, column, to);
    for (std::int64_t i = period; i < count; ++i) to[i] = to[i - period];
    return std::exchange(to, to + count + column_skew);
  });
  run_chunks(whole, kStretch, [&](std::int64_t begin, std::int64_t end) {
    run(whole.part(begin, end, 0),
        all.map([&](const float* column) { return column == nullptr ? nullptr : column + begin % period; }));
  });
}

// The general case: each chunk expands its parameters, with skewed columns against cache conflicts.
void Broadcast::expanded() const {
  constexpr std::int64_t length = 1024;
  run_chunks(whole, length, [&](std::int64_t begin, std::int64_t end) {
    std::array<float, 4 * (length + column_skew)> buffer;
    float* to = buffer.data();
    run(whole.part(begin, end, 0), columns.map([&](const float* column) -> const float* {
      if (column == nullptr) return nullptr;
      expand(begin, end, column, to);
      return std::exchange(to, to + length + column_skew);
    }));
  });
}

}  // namespace

void run_stretches(const Tensor& x, std::int64_t length, Tensor& y, Tensor* mask,
                   const std::function<void(const Stretch&, std::int64_t)>& run) {
  const Whole whole{x, y, mask};
  run_chunks(whole, length,
             [&](std::int64_t begin, std::int64_t end) { run(whole.part(begin, end, end - begin), begin); });
}

void run_stretches(const Tensor& x, const Columns& columns, Tensor& y, Tensor* mask, const RunStretch& run) {
  const Whole whole{x, y, mask};
  // Small tensors take one call, without the cost of a parallel loop.
  if (x.numel() <= parallel_stretch) return run(whole.part(0, x.numel(), x.numel()), columns);
  run_chunks(whole, parallel_stretch / 4, [&](std::int64_t begin, std::int64_t end) {
    run(whole.part(begin, end, end - begin), columns);
  });
}

void run_stretches(const Tensor& x, const Shape& range, const Columns& columns, Tensor& y, Tensor* mask,
                   const RunStretch& run) {
  if (x.numel() == 0) return;
  if (numel(range) == 1) return run_stretches(x, columns, y, mask, run);
  const Walk walk(
      x.shape(), x.layout(),
      {axis_strides(x.shape(), x.layout()), broadcast_strides(range, Layout::row_major, x.shape())});
  const Whole whole{x, y, mask};
  const Broadcast all{whole, walk, columns, run};
  const std::int64_t inner = walk.inner(), step = walk.step(1), group = vector_group();
  // From the cheapest form of parameters to the general one. Stretches start at multiples of 8 for the mask,
  // hence the conditions on `inner`.
  const bool dense = x.layout() == Layout::row_major && numel(range) * inner == x.numel();
  if (step == 0 && inner >= kLongRow && inner % 8 == 0) return all.rows_of_one_parameter();
  if (step == 0 && inner < kLongRow && inner % group == 0) return all.several_rows(dense);
  if (step == 1 && inner >= kLongRow && inner % group == 0) return all.rows_of_own_parameters();
  if (walk.period(1) <= kRepeated) return all.repeated();
  all.expanded();
}

}  // namespace fq::cpu
