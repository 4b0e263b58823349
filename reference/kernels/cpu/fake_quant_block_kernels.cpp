#include "fakequant/reference/kernels/cpu/fake_quant_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fakequant/reference/kernels/cpu/fake_quant_block_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "fakequant/core/backend/cpu/vector/vector-inl.h"
//
#include "fakequant/reference/kernels/cpu/stretch-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {
namespace {

using cpu::BlockRows;
using cpu::Fp4Rows;
using detail::ElementGrid;

// P says how an element finds its parameter: Shared, Each or Blocked of stretch-inl.h.
template <class P>
struct Fp4Formula {
  P scale, divisor, bound;

  FloatVector value(FloatVector x, std::int64_t i) const {
    return fp4_block_fake_quant(x, scale.at(i), divisor.at(i));
  }
  FloatMask mask(FloatVector x, std::int64_t i) const { return modelopt_mask(x, bound.at(i)); }
};

struct Fp4Formulas {
  const Fp4Rows& rows;

  template <class P>
  Fp4Formula<P> make(From from) const {
    const auto p = [&](const float* column) { return P(column + from.at, from.shift); };
    return {p(rows.columns.scale), p(rows.columns.divisor), p(rows.columns.bound)};
  }
};

template <class P>
struct BlockFormula {
  P scale, unscale, bound;
  ElementGrid grid;

  FloatVector value(FloatVector x, std::int64_t i) const {
    return block_fake_quant(x, scale.at(i), unscale.at(i), grid.max, grid.min_normal, grid.step, grid.nan);
  }
  FloatMask mask(FloatVector x, std::int64_t i) const { return modelopt_mask(x, bound.at(i)); }
};

// Makes the formula of a stretch from the columns of its parameters.
struct BlockFormulas {
  const BlockRows& rows;

  template <class P>
  BlockFormula<P> make(From from) const {
    const auto p = [&](const float* column) { return P(column + from.at, from.shift); };
    return {p(rows.columns.scale), p(rows.columns.inverse), p(rows.columns.bound), rows.grid};
  }
};

float largest(FloatVector v) {
  const FloatTag d;
  return hn::GetLane(hn::MaxOfLanes(d, v));
}

// Largest |x| of blocks that have one vector and more, or fit a vector several times (block 8 with 16 lanes).
// max_ drops NaN: with NaN as first operand it returns the second.
template <class T>
void find_maxima(const T* x, std::int64_t count, std::int64_t block, float* maxima) {
  const FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  if (block < lanes) {
    HWY_ALIGN float values[HWY_MAX_BYTES / sizeof(float)];
    for (std::int64_t i = 0; i < count; i += lanes) {
      cpu::fetch_ahead(x + i);
      hn::Store(max_(abs_(load(x + i)), hn::Zero(d)), d, values);
      for (std::int64_t k = 0; k < lanes; k += block)
        *maxima++ = *std::max_element(values + k, values + k + block);
    }
    return;
  }
  for (std::int64_t i = 0; i < count; i += block) {
    cpu::fetch_ahead(x + i, block);
    // One vector of maxima per block, reduced once at the end.
    FloatVector most = hn::Zero(d);
    for (std::int64_t k = 0; k < block; k += lanes) most = max_(abs_(load(x + i + k)), most);
    *maxima++ = largest(most);
  }
}

void BlockMaxima(const void* x, DType dtype, std::int64_t count, std::int64_t block, float* maxima) {
  switch (dtype) {
    case DType::f16:
      return find_maxima(static_cast<const float16*>(x), count, block, maxima);
    case DType::bf16:
      return find_maxima(static_cast<const bfloat16*>(x), count, block, maxima);
    default:
      return find_maxima(static_cast<const float*>(x), count, block, maxima);
  }
}

// Whole vectors: `amax` and `scale` are padded to vector groups.
void Nvfp4Scales(const float* amax, std::int64_t count, float global, float* scale) {
  const FloatTag d;
  const auto by = hn::Set(d, global);
  for (std::int64_t i = 0; i < count; i += static_cast<std::int64_t>(hn::Lanes(d)))
    hn::StoreU(nvfp4_scale(hn::LoadU(d, amax + i), by), d, scale + i);
}

void FakeQuantFp4(const Stretch& stretch, const Fp4Rows& rows) { map_stretch(stretch, Fp4Formulas{rows}); }
void FakeQuantBlocks(const Stretch& stretch, const BlockRows& rows) {
  map_stretch(stretch, BlockFormulas{rows});
}

}  // namespace
}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fq {
HWY_EXPORT(BlockMaxima);
HWY_EXPORT(Nvfp4Scales);
HWY_EXPORT(FakeQuantFp4);
HWY_EXPORT(FakeQuantBlocks);

namespace cpu {

void block_maxima(const void* x, DType dtype, std::int64_t count, std::int64_t block, float* maxima) {
  HWY_DYNAMIC_DISPATCH(BlockMaxima)(x, dtype, count, block, maxima);
}
void nvfp4_scales(const float* amax, std::int64_t count, float global, float* scale) {
  HWY_DYNAMIC_DISPATCH(Nvfp4Scales)(amax, count, global, scale);
}
void fake_quant(const Stretch& stretch, const Fp4Rows& rows) {
  HWY_DYNAMIC_DISPATCH(FakeQuantFp4)(stretch, rows);
}
void fake_quant(const Stretch& stretch, const BlockRows& rows) {
  HWY_DYNAMIC_DISPATCH(FakeQuantBlocks)(stretch, rows);
}

}  // namespace cpu
}  // namespace fq
#endif
