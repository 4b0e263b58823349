#pragma once

/// Counter-based random numbers: each element of a draw can be computed alone, on any thread or device.
/// Results do not depend on how work is split.
///
///     Tensor weight = Tensor::empty({64, 32});
///     fill_normal(weight, 0, 0.02, 1234);
///     const RandomScope scope(seed, step);  // the stream of ops::dropout in this step
///
/// The generator is Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3",
/// 2011).

#include <array>
#include <cstdint>

#include "fakequant/core/context.h"
#include "fakequant/core/tensor.h"

namespace fq {

/// Returns four 32-bit random words as a function of a counter and a key. Counters that differ in one bit
/// give independent words.
[[nodiscard]] std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                                  std::array<std::uint32_t, 2> key) noexcept;

/// Returns the stream of this thread; seed 0 and step 0 outside of any scope.
[[nodiscard]] inline RandomStream& random_stream() noexcept { return context().random; }

/// Sets this thread's stream to the first operator of a step for the lifetime of this object, then restores
/// the previous stream. A training loop opens one scope per step, so a resumed run draws the same numbers.
class RandomScope : public ScopedValue<RandomStream> {
 public:
  RandomScope(std::uint64_t seed, std::uint64_t step) : ScopedValue(context().random, {seed, step, 0}) {}
};

/// Fills an f32 or f64 tensor with uniform values in [low, high], each from 32 random bits. Element e in
/// logical row-major order is a function of (seed, stream, e), on any device and in any layout. Use a
/// different `stream` (below 2^63) for each parameter. A tensor on `meta` stays unchanged. Throws
/// ArgumentError for another dtype.
void fill_uniform(Tensor& out, double low, double high, std::uint64_t seed, std::uint64_t stream = 0);
/// Fills as `fill_uniform`, with normally distributed values of this mean and standard deviation (Box and
/// Muller 1958).
void fill_normal(Tensor& out, double mean, double deviation, std::uint64_t seed, std::uint64_t stream = 0);

}  // namespace fq
