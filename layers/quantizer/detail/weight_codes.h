#pragma once

/// WeightCodes: cached codes and stored scales of a layer's weight.

#include <mutex>
#include <optional>
#include <string>

#include "fakequant/core/detail/packed_scales.h"
#include "fakequant/layers/quantizer/range.h"

namespace fq {

class StateDict;
namespace detail {
class GridCache;
}

/// Stores data of one weight, by its kind:
///
/// - float weight: its codes, until the weight or the grid changes;
/// - packed codes (compress.h): their scales, if ranges would come from each input;
/// - weight in ggml's blocks: the extreme codes, which determine the steps.
///
/// Safe to use from several threads.
class WeightCodes {
 public:
  /// The arguments belong to the owning quantizer, and must outlive this object.
  WeightCodes(const QuantParams& params, const QuantizerRange& range, const detail::GridCache& grid)
      : params_(params), range_(range), grid_(grid) {}

  /// Whether codes of w are cached: w is a float parameter, and its quantizer gives codes and does not
  /// observe.
  [[nodiscard]] bool keeps(const Variable& w) const;
  /// Returns the request that quantizes w now; nothing if its codes are cached already, or never cached.
  [[nodiscard]] std::optional<QuantizeRequest> request(const Variable& w) const;
  /// Returns the cached codes of w, with a mask if a gradient needs it; nothing if they are not cached.
  [[nodiscard]] std::optional<QuantizedTensor> kept(const Variable& w) const;
  /// Caches the codes of a request.
  void keep(const Variable& w, QuantizedTensor codes);
  /// Returns the codes of w, with the gradient of quantizing it. `keeps` must hold for w.
  [[nodiscard]] Variable of(const Variable& w);

  /// Returns the codes of a packed weight. Throws ArgumentError unless they are in `packed_dtype` of the
  /// format, and unless there is one scale for each block.
  [[nodiscard]] QuantizedTensor unpack(const Tensor& packed) const;
  /// Returns the stored scales of a packed weight, if ranges come from each input; otherwise undefined.
  [[nodiscard]] const PackedScales& scales() const noexcept { return scales_; }
  /// Throws ArgumentError as `check_scales`.
  void set_scales(PackedScales scales);

  /// Returns the code of the largest number of each block, f32 [N, K / 32], for a weight in ggml's blocks
  /// (ggml_scheme.h). Undefined for the codes of llama.cpp.
  [[nodiscard]] const Tensor& extreme_codes() const noexcept { return extreme_codes_; }
  /// Throws ArgumentError for codes that are 0, infinite or NaN.
  void set_extreme_codes(Tensor codes);
  /// Moves the extreme codes to the device of the weight.
  void to(Device device) { extreme_codes_ = extreme_codes_.to(device); }

  void save(StateDict& state, const std::string& prefix) const;
  void load(const StateDict& state, const std::string& prefix);
  /// Drops the cached codes, after the parameters or the range changed.
  void forget();

 private:
  struct Kept {
    const void* node = nullptr;
    std::uint64_t version = 0;
    std::optional<QuantizedTensor> codes;
  };

  [[nodiscard]] bool wants_mask(const Variable& w) const;
  [[nodiscard]] Grid packed_grid(int rank, Device device) const;

  const QuantParams& params_;
  const QuantizerRange& range_;
  const detail::GridCache& grid_;
  PackedScales scales_;
  Tensor extreme_codes_;
  mutable std::mutex mutex_;  // guards kept_
  Kept kept_;
};

}  // namespace fq
