#pragma once

/// Whole groups of f32, f16 or bf16 as floats. Two 16-bit numbers are packed with one instruction.

#include "fakequant/core/backend/cuda/loops/groups.cuh"
#include "fakequant/core/numerics/number_formats.h"
#include "fakequant/core/tensor.h"

namespace fq::cuda {
namespace loops {

template <class T>
FQ_HD std::uint32_t pack_pair(float low, float high) {
#if defined(__CUDA_ARCH__)
  std::uint32_t two;
  if constexpr (std::is_same_v<T, float16>)
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
  else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
  return two;
#else
  return static_cast<std::uint32_t>(T(high).bits) << 16 | T(low).bits;
#endif
}

}  // namespace loops

/// A group in memory. `size` elements take a multiple of 16 bytes and are 16-byte aligned, as in all
/// functions of this file.
template <class T, int size>
struct NarrowGroup {
  using Pack = loops::Pack<T>;
  static constexpr int count = size / Pack::count;
  Pack packs[count];

  [[nodiscard]] static FQ_HD NarrowGroup of(const T* p) {
    NarrowGroup out;
    for (int i = 0; i < count; ++i) out.packs[i] = loops::load_pack(reinterpret_cast<const Pack*>(p) + i);
    return out;
  }
  FQ_HD void to(float (&v)[size]) const {
    for (int j = 0; j < size; ++j) v[j] = static_cast<float>(packs[j / Pack::count].v[j % Pack::count]);
  }
};

/// Sets v[j] = p[j].
template <int size, class T>
FQ_HD void load_narrow(const T* p, float (&v)[size]) {
  NarrowGroup<T, size>::of(p).to(v);
}

/// Sets p[j] = v[j], rounded to nearest even.
template <int size, class T>
FQ_HD void store_narrow(T* p, const float (&v)[size]) {
  using Pack = loops::Pack<std::conditional_t<sizeof(T) == 2, std::uint32_t, T>>;
  for (int i = 0; i < size * static_cast<int>(sizeof(T)) / 16; ++i) {
    Pack pack;
    for (int j = 0; j < 4; ++j)
      if constexpr (sizeof(T) == 2)
        pack.v[j] = loops::pack_pair<T>(v[8 * i + 2 * j], v[8 * i + 2 * j + 1]);
      else
        pack.v[j] = v[4 * i + j];
    loops::store_pack(reinterpret_cast<Pack*>(p) + i, pack);
  }
}

/// Returns whether the tensor's memory is 16-byte aligned.
inline bool packed(const Tensor& x) { return loops::packed(static_cast<const float*>(x.raw())); }

}  // namespace fq::cuda
