// AMX tiles. Include in a source that uses foreach_target.h; not a public header. Included once for each
// target, hence no pragma once.

#if defined(FQ_TILES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FQ_TILES_INL_H
#undef FQ_TILES_INL_H
#else
#define FQ_TILES_INL_H
#endif

#include <cstdint>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {

#if HWY_ARCH_X86_64 && HWY_TARGET <= HWY_AVX3
constexpr std::int64_t kTile = 16;  // rows, and 32-bit columns

/// Configuration for LDTILECFG, by default eight whole tiles.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1, start = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

/// Configures the tiles of this thread during the lifetime of this object.
class Tiles {
 public:
  explicit Tiles(const TileShapes& shapes) { __asm__ volatile("ldtilecfg %0" : : "m"(shapes)); }
  ~Tiles() { __asm__ volatile("tilerelease"); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

template <int tile>
HWY_INLINE void clear_tile() {
  __asm__ volatile("tilezero %%tmm%c0" : : "i"(tile));
}
/// `pitch` is the distance of rows in bytes.
template <int tile>
HWY_INLINE void load_tile(const void* from, std::int64_t pitch) {
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(pitch), "i"(tile) : "memory");
}
template <int tile>
HWY_INLINE void store_tile(void* to, std::int64_t pitch) {
  __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(pitch), "i"(tile) : "memory");
}
#endif

}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
