#pragma once

/// AugmentedSample: a sample that augmentation changes, and its random streams.

#include <cstdint>
#include <string_view>
#include <vector>

#include "fakequant/core/blocks/shape.h"
#include "fakequant/train/data/augment.h"
#include "fakequant/train/data/detail/random.h"

namespace fq::detail {

enum class SampleKind { image, signal, row, ids, other };

[[nodiscard]] SampleKind sample_kind(const Shape& sample, bool token_ids);

struct AugmentedSample {
  Shape shape;  ///< without N
  const std::vector<float>& black;
  const std::vector<float>& white;
  std::uint64_t seed;
  std::int64_t epoch, key;
  float* values = nullptr;      ///< elements of other kinds than ids
  std::int64_t* ids = nullptr;  ///< elements of ids

  [[nodiscard]] std::int64_t channels() const { return shape[0]; }
  /// Returns the number of elements of a channel.
  [[nodiscard]] std::int64_t inner() const { return numel(shape) / shape[0]; }
  [[nodiscard]] std::int64_t height() const { return shape[1]; }
  [[nodiscard]] std::int64_t width() const { return shape[2]; }
  [[nodiscard]] float* plane(std::int64_t channel) const { return values + channel * inner(); }
  /// Returns the random stream of one purpose. Streams are independent, so a new purpose does not change the
  /// others.
  [[nodiscard]] Draws draws(std::string_view purpose) const { return make_draws(purpose, seed, epoch, key); }

  [[nodiscard]] static Draws make_draws(std::string_view purpose, std::uint64_t seed, std::int64_t epoch,
                                        std::int64_t key) {
    std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
    for (const char c : purpose) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    return {seed ^ hash, static_cast<std::uint64_t>(epoch), static_cast<std::uint64_t>(key)};
  }
};

}  // namespace fq::detail
