#include <algorithm>
#include <limits>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/numerics/detail/minifloat.h"
#include "fakequant/core/tape.h"
#include "fakequant/reference/detail/block_scales.h"
#include "fakequant/reference/detail/clipped.h"
#include "fakequant/reference/kernels/kernels.h"
#include "fakequant/reference/modelopt.h"

namespace fq::modelopt {
namespace {

using detail::ReferenceKernels;

constexpr const char* kDynamic = "dynamic_block_quantize";
constexpr NumBits kE4m3{4, 3}, kE8m0{8, 0}, kE3m0{3, 0}, kE2m1{2, 1};

// Rounding of magnitudes: the grid of the format, and the result for NaN.
struct Element {
  Minifloat grid;
  float nan;
};

Element element(const NumBits& bits) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  // Formats without exponent are grids whose min_normal is above max / 2: every step is min_normal * step,
  // which is 1 for 8 bits, 0.5 for E1M2 and 1 for E0M3.
  if (bits == NumBits(8)) return {{0, 6, 127.0f, 64.0f, 0x1p-6f}, 0};
  if (bits == NumBits(1, 2)) return {{1, 2, 3.5f, 2.0f, 0x1p-2f}, 3.5f};
  if (bits == NumBits(0, 3)) return {{0, 3, 7.0f, 4.0f, 0x1p-2f}, 7.0f};
  if (bits == kE3m0) return {{3, 0, 16.0f, 0.25f, 1.0f}, 16.0f};
  const bool known =
      std::ranges::any_of(std::initializer_list<NumBits>{{4, 3}, {5, 2}, {3, 2}, {2, 3}, {2, 1}},
                          [&](auto b) { return b == bits; });
  FQ_CHECK(known, kDynamic,
           "num_bits is {}: use 8, (4, 3), (5, 2), (3, 2), (2, 3), (2, 1), (1, 2), (0, 3) or (3, 0)",
           to_string(bits));
  const auto grid = Minifloat::of({bits.exponent(), bits.mantissa()});
  // Only 8-bit floats have a code for NaN. Smaller ones saturate.
  return {grid, bits.bits() == 8 ? nan : grid.max};
}

// Arguments of dynamic_block_quantize.
struct Request {
  NumBits num_bits, scale_bits;
  std::int64_t block;
  const Amax& global;
  BlockKernel kernel;
};

// Limits of the reference's extension, tensor_quant_mx.cu.
void check_extension(const Request& r) {
  FQ_CHECK(r.scale_bits == kE8m0 || r.scale_bits == kE4m3, kDynamic, "scale_bits is {}: use (8, 0) or (4, 3)",
           to_string(r.scale_bits));
  FQ_CHECK(r.block == 8 || r.block == 16 || r.block == 32, kDynamic, "the block size is {}: use 8, 16 or 32",
           r.block);
  FQ_CHECK(!r.global.defined() || r.scale_bits == kE4m3, kDynamic,
           "global_amax is given and scales of (8, 0) have none: leave it out, or use scale_bits (4, 3)");
}

// The reference's Triton kernel exists for NVFP4 only.
void check_triton(const Request& r) {
  FQ_CHECK(
      r.num_bits == kE2m1 && r.scale_bits == kE4m3 && r.block == 16, kDynamic,
      "the triton kernel with num_bits {}, scale_bits {} and blocks of {}: use (2, 1), (4, 3) and 16, or the "
      "kernel cuda_ext",
      to_string(r.num_bits), to_string(r.scale_bits), r.block);
  FQ_CHECK(r.global.defined(), kDynamic, "global_amax is missing: the triton kernel needs it");
}

void check(const Tensor& x, const Request& r) {
  FQ_CHECK(x.defined() && is_floating(x.dtype()) && x.dtype() != DType::f64, kDynamic,
           "the input is {}: use f32, f16 or bf16", x.describe());
  FQ_CHECK(x.rank() > 0, kDynamic, "the input has no axes: blocks lie along the last one");
  r.kernel == BlockKernel::triton ? check_triton(r) : check_extension(r);
  if (!r.global.defined() || r.global.values().size() == 1) return;
  const bool rows = x.rank() == 2 && r.kernel == BlockKernel::cuda_ext &&
                    static_cast<std::int64_t>(r.global.values().size()) == x.dim(0);
  FQ_CHECK(rows, kDynamic,
           "global_amax has {} elements and the input is {}: use one, or to cuda_ext one for each row of a "
           "2-D input",
           r.global.values().size(), to_string(x.shape()));
}

/// The scales of the blocks of x. The caller keeps `globals`, on the device of x, alive.
detail::BlockScales make_block_scales(const Tensor& x, const Request& r, float max, const Tensor& globals) {
  using Rule = detail::BlockScales::Rule;
  if (r.scale_bits == kE8m0) return {Rule::power_of_two, max};
  if (!r.global.defined()) return {Rule::e4m3, max};
  const std::int64_t blocks_per_row = (x.shape().back() + r.block - 1) / r.block;
  const bool one = globals.numel() == 1;
  // Each global amax serves the blocks of one row, or, if there is only one, all blocks.
  return {Rule::e4m3_of_global, max, static_cast<const float*>(globals.raw()),
          one ? std::numeric_limits<std::int64_t>::max() : std::max<std::int64_t>(blocks_per_row, 1)};
}

// True if every block is full and the vector kernels have the format. Other inputs take the plain loops of
// fake_quant_rows, where the last block of a row may be short.
bool is_whole(const Tensor& x, const Request& r) {
  return x.shape().back() % r.block == 0 && r.num_bits != kE3m0;
}

void extension(const Tensor& x, const Request& r, float bound, Tensor& y, Tensor* mask) {
  const Element e = element(r.num_bits);
  const Tensor globals = r.global.tensor().to(x.device());
  const auto scales = make_block_scales(x, r, e.grid.max, globals);
  const detail::ElementGrid grid{e.grid.max, e.grid.min_normal, e.grid.step, e.nan};
  if (is_whole(x, r))
    return detail::run(x.device(), &ReferenceKernels::fake_quant_blocks, x, r.block, grid, scales, bound, y,
                       mask);
  detail::run(x.device(), &ReferenceKernels::fake_quant_rows, x, r.block, grid, r.num_bits == kE3m0, scales,
              y);
}

// 2688 = 6 * 448, the largest E2M1 value times the largest E4M3 scale. 1e-12 is the reference's floor.
void triton(const Tensor& x, const Request& r, float bound, Tensor& y, Tensor* mask) {
  const float ratio = r.global.values()[0] / 2688.0f, global = ratio > 0 ? ratio : 1e-12f;
  if (is_whole(x, r))
    return detail::run(x.device(), &ReferenceKernels::fake_quant_nvfp4, x, global, bound, y, mask);
  detail::run(x.device(), &ReferenceKernels::fake_quant_nvfp4_rows, x, global, y);
}

// One range per row broadcasts along the columns.
Tensor global_mask(const Tensor& x, const Amax& global) {
  const Tensor range = global.values().size() == 1 ? global.tensor() : global.tensor().reshape({-1, 1});
  return detail::amax_mask(x, range, kDynamic);
}

detail::Masked quantized(const Tensor& input, const Request& r, bool masked) {
  check(input, r);
  // Rejects an unknown format also on `meta`, where no kernel runs.
  (void)element(r.num_bits);
  const Tensor x = input.to(Layout::row_major);
  detail::Masked out{Tensor::empty(x.shape(), x.dtype(), x.device()), {}};
  // The block kernels write the mask too if there is one bound; otherwise it takes a second pass over x.
  const bool fused = masked && is_whole(x, r) && r.global.values().size() == 1;
  if (fused) out.mask = Tensor::empty(x.shape(), DType::u1, x.device());
  const float bound = fused ? *detail::comparison_bound(x.dtype(), r.global.tensor()).data<float>()
                            : std::numeric_limits<float>::infinity();
  if (!x.device().is_meta())
    (r.kernel == BlockKernel::triton ? triton : extension)(x, r, bound, out.y, fused ? &out.mask : nullptr);
  if (masked && !fused) out.mask = global_mask(x, r.global);
  out.y = out.y.to(input.layout());
  return out;
}

}  // namespace

Tensor dynamic_block_quantize(const Tensor& x, const NumBits& num_bits, const NumBits& scale_bits,
                              std::int64_t block_size, const Amax& global_amax, BlockKernel kernel, bool) {
  return quantized(x, {num_bits, scale_bits, block_size, global_amax, kernel}, false).y;
}

Variable dynamic_block_quantize(const Variable& x, const NumBits& num_bits, const NumBits& scale_bits,
                                std::int64_t block_size, const Amax& global_amax, BlockKernel kernel,
                                bool pass_through_bwd) {
  const Variable v = x.as_float();
  const bool masked = detail::needs_grad({v}) && !pass_through_bwd && global_amax.defined();
  detail::Masked out = quantized(v.tensor(), {num_bits, scale_bits, block_size, global_amax, kernel}, masked);
  return detail::record_clipped(kDynamic, v, std::move(out.y), std::move(out.mask));
}

}  // namespace fq::modelopt
