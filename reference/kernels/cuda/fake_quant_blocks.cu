#include "fakequant/core/backend/cuda/loops/range_rows.cuh"
#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/reference/kernels/cuda/fake_quant_blocks.h"

namespace fq::cuda {
namespace {

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

struct Nvfp4Formula : Fp4Formula {
  float global;
  FQ_HD RangeRow row(float amax, std::int64_t, float bound) const {
    const float scale = scalar::nvfp4_scale(amax, global);
    return {scale, scale, 0, bound};
  }
};

struct GridFormula {
  cpu::ElementGrid grid;
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

/// Blocks of 1, 2 or 4 groups: first each thread finds the largest number of its group, then the scale of its
/// block, and reads its group, which is still in a cache, again.
template <class T, class Formula>
struct DynamicBlocks {
  static constexpr int phases = 2;
  struct Shared {
    float most[block_threads];
  };
  Formula formula;
  const T* x;
  T* y;
  std::uint8_t* mask;
  std::int64_t count;
  Divisor groups;  // of a block
  float bound;

  FQ_HD void find(std::int64_t first, float& most) const {
    float v[group_size];
    load_as(x + first, group_size, v);
    most = fq::detail::largest_number(v, group_size);
  }

  FQ_HD void quantize(std::int64_t first, const float* most) const {
    float v[group_size], amax = most[0];
    unsigned bits = 0;
    load_as(x + first, group_size, v);
    for (int i = 1; i < groups.value; ++i) amax = scalar::max_(most[i], amax);
    const RangeRow row = formula.row(amax, groups.quotient(first / group_size), bound);
    for (int j = 0; j < group_size; ++j) {
      bits |= static_cast<unsigned>(formula.mask(v[j], row)) << j;
      v[j] = formula.value(v[j], row);
    }
    store_as(y + first, group_size, v);
    if (mask != nullptr) mask[first / group_size] = static_cast<std::uint8_t>(bits);
  }

  template <int Phase>
  FQ_HD void phase(Thread t, Shared& shared) const {
    const std::int64_t first = t.first() * group_size;
    if (first >= count) return;
    if (Phase == 0) find(first, shared.most[t.thread]);
    if (Phase == 1) quantize(first, shared.most + groups.quotient(t.thread) * groups.value);
  }
};

template <class Formula>
void dynamic(const Tensor& x, std::int64_t block, Formula formula, float bound, Tensor& y, Tensor* mask) {
  const std::int64_t groups = x.numel() / group_size;
  visit_narrow_float(x.dtype(), [&]<class T>(T) {
    for_blocks(
        x.device(), (groups + block_threads - 1) / block_threads,
        DynamicBlocks<T, Formula>{formula, static_cast<const T*>(x.raw()), static_cast<T*>(y.mutable_raw()),
                                  mask_bytes(mask), x.numel(), block / group_size, bound});
  });
}

template <class Formula>
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
  const Tensor in = x.to(DType::f32);
  Tensor out = Tensor::empty(x.shape(), DType::f32, x.device());
  const std::int64_t columns = x.shape().back(), blocks = (columns + block - 1) / block;
  if (columns > 0)
    for_items(x.device(), x.numel() / columns * blocks,
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
  const Strides walk = range_walk(x.reshape({blocks, x.numel() / blocks}), {blocks, 1});
  quantize_by_rows(x, Fp4Formula{}, WalkedRanges<Fp4Ranges>{ranges, walk}, y, mask);
}

void fake_quant_blocks(const Tensor& x, std::int64_t block, const cpu::ElementGrid& grid,
                       const fq::detail::BlockScales& scales, float bound, Tensor& y, Tensor* mask) {
  dynamic(x, block, GridFormula{grid, scales}, bound, y, mask);
}

void fake_quant_nvfp4(const Tensor& x, float global, float bound, Tensor& y, Tensor* mask) {
  dynamic(x, 16, Nvfp4Formula{{}, global}, bound, y, mask);
}

void fake_quant_rows(const Tensor& x, std::int64_t block, const cpu::ElementGrid& grid, bool half_away,
                     const fq::detail::BlockScales& scales, Tensor& y) {
  if (half_away) return rows(x, block, E3m0Formula{{grid, scales}}, y);
  rows(x, block, GridFormula{grid, scales}, y);
}

void fake_quant_nvfp4_rows(const Tensor& x, float global, Tensor& y) {
  rows(x, 16, Nvfp4Formula{{}, global}, y);
}

}  // namespace fq::cuda
