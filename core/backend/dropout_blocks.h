#pragma once

/// Which elements a dropout keeps, for host and device.

#include <cmath>

#include "fakequant/core/numerics/detail/philox.h"
#include "fakequant/core/random.h"

namespace fq::detail {

/// Blocks of four elements share a counter; bits of a block's number past 32 go above the count of operators,
/// which stays below 2^24.
struct DropoutBlocks {
  std::uint64_t threshold, seed, step;
  std::uint32_t op;

  DropoutBlocks(double p, const RandomStream& s)
      : threshold(static_cast<std::uint64_t>(std::nearbyint(p * 0x1p32))),
        seed(s.seed),
        step(s.step),
        op(s.op) {}

  /// 1 where the element is kept; elements count in logical row-major order.
  FQ_HD void keep(std::int64_t block, std::uint8_t* four) const {
    const auto words =
        philox_words({static_cast<std::uint32_t>(block), op ^ (static_cast<std::uint32_t>(block >> 32) << 24),
                      static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(step >> 32)},
                     {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
    for (std::size_t i = 0; i < 4; ++i) four[i] = words[i] >= threshold ? 1 : 0;
  }
};

template <class T>
struct Kept {
  T scale;
  FQ_HD T operator()(T x, std::uint8_t keep) const { return keep != 0 ? x * scale : T{0}; }
};

}  // namespace fq::detail
