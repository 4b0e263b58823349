#pragma once

/// GridCache: makes the grids of a quantizer from its format and range, and keeps them.

#include <memory>
#include <mutex>
#include <optional>

#include "fakequant/layers/quantizer/range.h"

namespace fq::detail {

/// Keeps the grid of a known range until the range changes. If each input has its own range, it makes a grid
/// for each input, and readers of one input share its codes. Threads may call const functions concurrently.
class GridCache {
 public:
  /// `params` and `range` belong to the quantizer, and outlive the cache.
  GridCache(const QuantParams& params, const QuantizerRange& range) : params_(params), range_(range) {}

  /// Returns the grid of an input. On `meta`, an unknown amax is 1. Throws ArgumentError for axes that the
  /// input does not have, and without amax.
  [[nodiscard]] Grid input_grid(const Variable& x) const;
  /// Returns the grid of the known range. Throws ArgumentError if each input has its own range.
  [[nodiscard]] Grid fixed_grid() const;
  /// Returns the grid of the known range for inputs of a rank on a device. With rank -1, axes count from the
  /// back.
  [[nodiscard]] Grid fixed_grid(int rank, Device device) const;
  /// Returns the cached codes of `x`. Undefined if `x` or the range changed since `cache_codes`, and in a
  /// trace, where each reader quantizes.
  [[nodiscard]] Variable cached_codes(const Variable& x) const;
  /// Keeps the codes of `x` as long as a reader holds them. Only for inputs with their own range.
  void cache_codes(const Variable& x, const Variable& codes) const;
  /// Drops cached grids and codes. Call it when the parameters or the range changed.
  void forget();

 private:
  struct Key {
    int rank = -1;
    std::uint64_t version = 0;  // of amax
    Device device;
    bool operator==(const Key&) const = default;
  };

  struct Codes {
    std::weak_ptr<Node> value, codes;
    std::uint64_t version = 0, range_version = 0;
  };

  /// Whether each input has its own range.
  [[nodiscard]] bool depends_on_input() const;
  [[nodiscard]] std::uint64_t range_version() const;
  [[nodiscard]] Granularity granularity(int rank) const;
  [[nodiscard]] float global_amax(const Tensor& ranges) const;
  [[nodiscard]] Grid make_grid(const Tensor& amax, const Granularity& granularity) const;
  [[nodiscard]] Grid make_input_grid(const Tensor& x) const;

  const QuantParams& params_;
  const QuantizerRange& range_;
  mutable std::mutex mutex_;  // guards the members below
  mutable std::optional<Grid> kept_;
  mutable Key key_;
  mutable Codes last_;
};

}  // namespace fq::detail
