#pragma once

/// Sums as floats, a stretch at a time.

#include <functional>

#include "fakequant/core/accumulator.h"

namespace fq::cpu {

/// Reads the values of an accumulator, which outlives it, in memory order, with its ReLU.
class StretchValues {
 public:
  /// `x` is one that can be read.
  explicit StretchValues(const Accumulator& x);
  /// All but concatenations and moves.
  [[nodiscard]] static bool can_read(const Accumulator& x);

  /// The values of `count` elements from `begin` on. `mask`, which may be null, receives where the ReLU
  /// passes a gradient.
  void operator()(std::int64_t begin, std::int64_t count, float* to, std::uint8_t* mask = nullptr) const;
  /// The same before the ReLU.
  void plain(std::int64_t begin, std::int64_t count, float* to) const { read_(begin, count, to); }

 private:
  bool relu_;
  std::function<void(std::int64_t begin, std::int64_t count, float* to)> read_;
};

}  // namespace fq::cpu
