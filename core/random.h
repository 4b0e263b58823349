#pragma once

/// Random numbers as functions of counters: any element of any draw can be made alone, on any thread or
/// device, so that no result depends on how work was shared out.
///
///     Tensor weight = Tensor::empty({64, 32});
///     fill_normal(weight, 0, 0.02, 1234);
///     const RandomScope scope(seed, step);  // what ops::dropout draws from, in this step
///
/// The generator is Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3",
/// 2011).

#include <array>
#include <cstdint>

#include "fakequant/core/context.h"
#include "fakequant/core/tensor.h"

namespace fq {

/// Four words of 32 random bits for a counter and a key. The same two always give the same words; counters
/// that differ in one bit give independent ones.
[[nodiscard]] std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                                  std::array<std::uint32_t, 2> key) noexcept;

/// The stream of this thread; it has seed 0 and step 0 outside of any scope.
[[nodiscard]] inline RandomStream& random_stream() noexcept { return context().random; }

/// Sets this thread's stream to the first operator of a step while it lives, and puts the former one back.
/// A training loop opens one a step: a run resumed at a step then draws the same numbers.
class RandomScope : public ScopedValue<RandomStream> {
 public:
  RandomScope(std::uint64_t seed, std::uint64_t step) : ScopedValue(context().random, {seed, step, 0}) {}
};

/// Fills an f32 or f64 tensor with values in [low, high], made of 32 random bits each. Element e in logical
/// row-major order is a function of (seed, stream, e), on any device and in any layout; `stream` (below 2^63)
/// tells parameters apart. A tensor on `meta` stays as it is. Throws ArgumentError for another dtype.
void fill_uniform(Tensor& out, double low, double high, std::uint64_t seed, std::uint64_t stream = 0);
/// As `fill_uniform`, with values of that mean and standard deviation, normally distributed (Box and Muller
/// 1958).
void fill_normal(Tensor& out, double mean, double deviation, std::uint64_t seed, std::uint64_t stream = 0);

}  // namespace fq
