#include "fakequant/core/backend/cuda/loops/launch.cuh"
#include "fakequant/core/backend/cuda/loops/narrow_groups.cuh"
#include "fakequant/core/backend/cuda/loops/range_rows.cuh"
#include "fakequant/core/numerics/detail/inverse_formulas.h"
#include "fakequant/reference/kernels/kernels.h"

namespace fq::cuda {
namespace {

// Formulas have value(x, row) and mask(x, row), for the row (scale, divisor, inverse, bound) of the block.
struct Fp4Formula {
  FQ_HD float value(float x, const RangeRow& r) const {
    return scalar::fp4_block_fake_quant(x, r.scale, r.divisor);
  }
  FQ_HD bool mask(float x, const RangeRow& r) const { return scalar::modelopt_mask(x, r.bound); }
};

FQ_HD RangeRow fp4_row(float scale, float bound) { return {scale, scalar::fp4_divisor(scale), 0, bound}; }

struct Fp4Ranges {
  const float *scale, *bound;
  FQ_HD RangeRow operator()(std::int64_t k) const { return fp4_row(scale[k], bound[k]); }
};

// NVFP4 of ModelOpt's Triton kernel. Scales are at least 1e-5, so the row needs no case for 0.
struct Nvfp4Formula : Fp4Formula {
  static constexpr int narrow_groups = 2;  ///< of 16 bits an element, for a thread
  float global;
  FQ_HD RangeRow row(float amax, std::int64_t, float bound) const {
    const float scale = scalar::nvfp4_scale(amax, global);
    return {scale, scale, scalar::divides_exactly(scale) ? scalar::div_(1.0f, scale) : 0.0f, bound};
  }
  FQ_HD void values(const RangeRow& r, float (&v)[group_size]) const {
    // Multiplying by the inverse has the bits of the division where divides_exactly holds; the other case
    // divides.
    const float most = scalar::mul_(6.0f, r.divisor);
    if (r.inverse != 0)
      for (float& each : v) each = scalar::fp4_fake_quant_by_inverse(each, r.divisor, r.inverse, most);
    else
      for (float& each : v) each = scalar::fp4_fake_quant(each, r.divisor);
  }
};

// Dynamic blocks of any format: multiply by the scale, round on the grid, multiply by `inverse` (unscale).
struct GridFormula {
  static constexpr int narrow_groups = 1;
  fq::detail::ElementGrid grid;
  fq::detail::BlockScales scales;
  FQ_HD RangeRow row(float amax, std::int64_t block, float bound) const {
    const auto s = scales(amax, block);
    return {s.scale, 0, s.unscale, bound};
  }
  FQ_HD float value(float x, const RangeRow& r) const {
    return scalar::block_fake_quant(x, r.scale, r.inverse, grid.max, grid.min_normal, grid.step, grid.nan);
  }
  FQ_HD bool mask(float x, const RangeRow& r) const { return scalar::modelopt_mask(x, r.bound); }
};

struct E3m0Formula : GridFormula {
  FQ_HD float value(float x, const RangeRow& r) const {
    return fq::detail::e3m0_fake_quant(x, {r.scale, r.inverse});
  }
};

// Returns the largest |v| without NaN. fmaxf returns the other operand for a NaN.
FQ_HD float largest_of_group(const float (&v)[group_size]) {
  float most = 0;
  for (const float each : v)
    most = FQ_BY_TARGET(::fmaxf(most, ::fabsf(each)),
                        std::max(most, scalar::is_nan_(each) ? 0.0f : scalar::abs_(each)));
  return most;
}

// Blocks of 8 * `groups` elements, with 1, 2 or 4 groups of eight. x, y: `count` elements, row-major.
// Phase 0: each thread reads its groups and stores their largest magnitudes in shared memory. With one group
// per thread, phase 1 finds the scale of the thread's block and rounds the group. With several, phase 1
// computes each block's scale once, and phase 2 rounds.
template <class T, class Formula, int groups>
struct DynamicBlocks {
  static constexpr int held = sizeof(T) == 2 ? Formula::narrow_groups : 1;  ///< of a thread
  static constexpr int phases = held == 1 ? 2 : 3;
  static constexpr int region = held * block_threads;
  static constexpr int rows = region / groups;  ///< blocks of a region
  static_assert(rows <= block_threads, "a thread finds one scale");
  using Group = NarrowGroup<T, group_size>;
  struct Shared {
    float most[region];
    RangeRow row[held == 1 ? 1 : rows];
  };
  struct Kept {
    float v[held][group_size];
  };
  Formula formula;
  const T* x;
  T* y;
  std::uint8_t* mask;
  std::int64_t count;
  float bound;

  // Returns the parameters of the block that starts at or contains element `first`.
  FQ_HD RangeRow row(std::int64_t first, const float* most) const {
    float amax = most[0];
    for (int i = 1; i < groups; ++i) amax = scalar::max_(most[i], amax);
    return formula.row(amax, first / (groups * group_size), bound);
  }
  FQ_HD void quantize(std::int64_t first, const RangeRow& of, float (&v)[group_size]) const {
    if (mask != nullptr) mask[first / group_size] = loops::mask_byte(formula, of, group_size, v);
    loops::apply(formula, of, v);
    store_narrow(y + first, v);
  }
  // Issues all loads of a thread before the first use, so that their latencies overlap.
  template <int... K>
  FQ_HD void read(std::int64_t begin, int at, Shared& shared, Kept& kept,
                  std::integer_sequence<int, K...>) const {
    Group own[held];
    const auto load = [&](int k) {
      const std::int64_t first = begin + (at + k * block_threads) * group_size;
      if (first < count) own[k] = Group::of(x + first);
    };
    const auto find = [&](int k) {
      own[k].to(kept.v[k]);
      shared.most[at + k * block_threads] = largest_of_group(kept.v[k]);
    };
    (load(K), ...);
    (find(K), ...);
  }
  template <int... K>
  FQ_HD void write(std::int64_t begin, int at, const Shared& shared, Kept& kept,
                   std::integer_sequence<int, K...>) const {
    const auto put = [&](int k) {
      const int own = at + k * block_threads;
      const std::int64_t first = begin + own * group_size;
      if (first < count) quantize(first, shared.row[own / groups], kept.v[k]);
    };
    (put(K), ...);
  }

  template <int Phase>
  FQ_HD void phase(Thread t, Shared& shared, Kept& kept) const {
    constexpr std::make_integer_sequence<int, held> all{};
    const std::int64_t begin = t.block * region * group_size;
    if (Phase == 0) read(begin, t.thread, shared, kept, all);
    if constexpr (held == 1) {
      const std::int64_t own = begin + t.thread * group_size;
      if (Phase == 1 && own < count)
        quantize(own, row(own, shared.most + t.thread / groups * groups), kept.v[0]);
    } else {
      const std::int64_t first = begin + t.thread * groups * group_size;
      if (Phase == 1 && t.thread < rows && first < count)
        shared.row[t.thread] = row(first, shared.most + t.thread * groups);
      if (Phase == 2) write(begin, t.thread, shared, kept, all);
    }
  }
};

template <int groups, class Formula>
void blocks_of_groups(const Tensor& x, Formula formula, float bound, Tensor& y, Tensor* mask) {
  // The kernel needs packed memory: other tensors go through a copy.
  const auto own = [](const Tensor& like) {
    return Tensor::empty(like.shape(), like.dtype(), like.device(), like.layout());
  };
  Tensor in = x, out = y;
  if (!packed(x)) (in = own(x)).copy_from(x);
  if (!packed(y)) out = own(y);
  visit_narrow_float(x.dtype(), [&]<class T>(T) {
    using Body = DynamicBlocks<T, Formula, groups>;
    launch_stateful_blocks(x.device(), (x.numel() / group_size + Body::region - 1) / Body::region,
                           Body{formula, static_cast<const T*>(in.raw()), static_cast<T*>(out.mutable_raw()),
                                mask_bytes(mask), x.numel(), bound});
  });
  if (!packed(y)) y.copy_from(out);
}

template <class Formula>
// One thread per block, for blocks of any length: x, y [rows, columns] f32, the last block of a row may be
// short.
struct Rows {
  Formula formula;
  const float* x;
  float* y;
  std::int64_t columns, block, blocks_per_row;

  FQ_HD void operator()(std::int64_t b) const {
    const std::int64_t row = quotient(b, blocks_per_row), at = (b - row * blocks_per_row) * block;
    const std::int64_t first = row * columns + at, count = columns - at < block ? columns - at : block;
    const RangeRow range = formula.row(fq::detail::largest_number(x + first, count), b, 0);
    for (std::int64_t i = first; i < first + count; ++i) y[i] = formula.value(x[i], range);
  }
};

template <class Formula>
void rows(const Tensor& x, std::int64_t block, Formula formula, Tensor& y) {
  // Rare path (partial blocks and E3M0), so 16-bit types go through f32 copies.
  const Tensor in = x.to(DType::f32);
  Tensor out = Tensor::empty(x.shape(), DType::f32, x.device());
  const std::int64_t columns = x.shape().back(), blocks = (columns + block - 1) / block;
  if (columns > 0)
    launch_each(x.device(), x.numel() / columns * blocks,
                Rows<Formula>{formula, static_cast<const float*>(in.raw()),
                              static_cast<float*>(out.mutable_raw()), columns, block, blocks});
  y.copy_from(out.to(y.dtype()));
}

}  // namespace

void fake_quant_fp4(const Tensor& x, const Tensor& scales, const Tensor& bounds, Tensor& y, Tensor* mask) {
  const std::int64_t blocks = scales.numel();
  if (blocks == 1 && scales.device().is_cpu())
    return quantize_by_rows(x, Fp4Formula{}, OneRange{fp4_row(*scales.data<float>(), *bounds.data<float>())},
                            y, mask);
  if (x.numel() == 0) return;
  const Tensor s = scales.to(x.device()), b = bounds.to(x.device());
  const Fp4Ranges ranges{static_cast<const float*>(s.raw()), static_cast<const float*>(b.raw())};
  // x as [blocks, length] with one range per row.
  const Strides walk = range_walk(x.reshape({blocks, x.numel() / blocks}), {blocks, 1});
  quantize_by_rows(x, Fp4Formula{}, WalkedRanges<Fp4Ranges>{ranges, walk}, y, mask);
}

void fake_quant_blocks(const Tensor& x, std::int64_t block, const fq::detail::ElementGrid& grid,
                       const fq::detail::BlockScales& scales, float bound, Tensor& y, Tensor* mask) {
  const GridFormula formula{grid, scales};
  if (block == group_size) return blocks_of_groups<1>(x, formula, bound, y, mask);
  if (block == 2 * group_size) return blocks_of_groups<2>(x, formula, bound, y, mask);
  blocks_of_groups<4>(x, formula, bound, y, mask);
}

void fake_quant_nvfp4(const Tensor& x, float global, float bound, Tensor& y, Tensor* mask) {
  blocks_of_groups<2>(x, Nvfp4Formula{{}, global}, bound, y, mask);
}

void fake_quant_rows(const Tensor& x, std::int64_t block, const fq::detail::ElementGrid& grid, bool half_away,
                     const fq::detail::BlockScales& scales, Tensor& y) {
  if (half_away) return rows(x, block, E3m0Formula{{grid, scales}}, y);
  rows(x, block, GridFormula{grid, scales}, y);
}

void fake_quant_nvfp4_rows(const Tensor& x, float global, Tensor& y) {
  rows(x, 16, Nvfp4Formula{{}, global}, y);
}

}  // namespace fq::cuda
