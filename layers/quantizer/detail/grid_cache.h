#pragma once

/// GridCache: format and range, made into the scales that codes are multiples of.

#include <memory>
#include <mutex>
#include <optional>

#include "fakequant/layers/quantizer/range.h"

namespace fq::detail {

/// The grid of a range that is known is kept until the range changes; where each input has its own, it is
/// made of the input, once for all who read that. Safe to ask from several threads.
class GridCache {
 public:
  /// Of the quantizer that owns it; both outlive it.
  GridCache(const QuantParams& params, const QuantizerRange& range) : params_(params), range_(range) {}

  /// The grid that x is put on; on `meta` of an amax of 1 where none is known. Throws ArgumentError for axes
  /// that x does not have, and without amax.
  [[nodiscard]] Grid of(const Variable& x) const;
  /// The grid in force, whatever the input. Throws ArgumentError where each input has its own.
  [[nodiscard]] Grid own() const;
  /// That of inputs of that rank, on that device; axes count from the back for a rank of -1.
  [[nodiscard]] Grid own(int rank, Device device) const;
  /// What `keep_codes` was told last, where that was of x as it is now, and can stand for codes made of it
  /// now; else undefined, as it is in a trace, where each reader rounds.
  [[nodiscard]] Variable codes_of(const Variable& x) const;
  /// Codes of x on the grid `of(x)`: as long as somebody holds them, they are those of x, whose other readers
  /// would else have a grid each.
  void keep_codes(const Variable& x, const Variable& codes) const;
  /// When settings or the range changed.
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

  /// Whether inputs have grids of their own.
  [[nodiscard]] bool of_each_input() const;
  [[nodiscard]] std::uint64_t range_version() const;
  [[nodiscard]] Granularity granularity(int rank) const;
  [[nodiscard]] float global_amax(const Tensor& ranges) const;
  [[nodiscard]] Grid made_of(const Tensor& amax, const Granularity& granularity) const;
  [[nodiscard]] Grid of_ranges_of(const Tensor& x) const;

  const QuantParams& params_;
  const QuantizerRange& range_;
  mutable std::mutex mutex_;  // guards what is kept
  mutable std::optional<Grid> kept_;
  mutable Key key_;
  mutable Codes last_;
};

}  // namespace fq::detail
