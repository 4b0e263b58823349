#pragma once

/// Piecewise conversion of sums to floats.

#include <functional>

#include "fakequant/core/accumulator.h"

namespace fq::cpu {

/// Reads the values of an accumulator in memory order, with its ReLU. The accumulator must outlive this
/// object.
class StretchValues {
 public:
  /// `x` must satisfy `can_read`.
  explicit StretchValues(const Accumulator& x);
  /// Returns whether the accumulator can be read: all kinds except concatenations and moves.
  [[nodiscard]] static bool can_read(const Accumulator& x);

  /// Writes the values of `count` elements beginning with `begin`. `mask`, which may be null, receives where
  /// the ReLU passes a gradient.
  void operator()(std::int64_t begin, std::int64_t count, float* to, std::uint8_t* mask = nullptr) const;
  /// Writes the values before the ReLU.
  void plain(std::int64_t begin, std::int64_t count, float* to) const { read_(begin, count, to); }

 private:
  bool relu_;
  std::function<void(std::int64_t begin, std::int64_t count, float* to)> read_;
};

}  // namespace fq::cpu
