#pragma once

/// The sample that is changed, and what it draws from.

#include <cstdint>
#include <string_view>
#include <vector>

#include "fakequant/core/blocks/shape.h"
#include "fakequant/train/data/augment.h"
#include "fakequant/train/data/detail/random.h"

namespace fq::detail {

enum class SampleKind { image, signal, row, ids, other };

[[nodiscard]] SampleKind kind_of(const Shape& sample, bool token_ids);

struct AugmentedSample {
  Shape shape;  ///< without N
  const std::vector<float>& black;
  const std::vector<float>& white;
  std::uint64_t seed;
  std::int64_t epoch, key;
  float* values = nullptr;      ///< of all but ids
  std::int64_t* ids = nullptr;  ///< of ids

  [[nodiscard]] std::int64_t channels() const { return shape[0]; }
  /// Elements of a channel.
  [[nodiscard]] std::int64_t inner() const { return numel(shape) / shape[0]; }
  [[nodiscard]] std::int64_t height() const { return shape[1]; }
  [[nodiscard]] std::int64_t width() const { return shape[2]; }
  [[nodiscard]] float* plane(std::int64_t channel) const { return values + channel * inner(); }
  /// Numbers of its own for each purpose: a new purpose leaves the others as they were.
  [[nodiscard]] Draws draws(std::string_view purpose) const { return draws_of(purpose, seed, epoch, key); }

  [[nodiscard]] static Draws draws_of(std::string_view purpose, std::uint64_t seed, std::int64_t epoch,
                                      std::int64_t key) {
    std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
    for (const char c : purpose) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    return {seed ^ hash, static_cast<std::uint64_t>(epoch), static_cast<std::uint64_t>(key)};
  }
};

}  // namespace fq::detail
