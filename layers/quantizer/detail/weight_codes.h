#pragma once

/// WeightCodes: caches the codes of a layer's weight while the weight does not change.

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

/// Keeps the codes of a float weight until the weight or its grid changes. Keeps the scales of packed codes
/// (compress.h) whose ranges would come from each input. Keeps the extreme codes of a weight in ggml's
/// blocks. Threads may call it concurrently.
class WeightCodes {
 public:
  /// All arguments belong to the quantizer, and outlive this.
  WeightCodes(const QuantParams& params, const QuantizerRange& range, const detail::GridCache& grid)
      : params_(params), range_(range), grid_(grid) {}

  /// Whether codes of `w` are kept: `w` is a float parameter, and its quantizer quantizes and does not
  /// observe.
  [[nodiscard]] bool keeps(const Variable& w) const;
  /// Returns the request that quantizes `w`. Nothing if its codes are kept already, or never.
  [[nodiscard]] std::optional<QuantizeRequest> request(const Variable& w) const;
  /// Keeps the codes of such a request.
  void keep(const Variable& w, QuantizedTensor codes);
  /// Returns the codes of `w`, with the gradient of quantizing it. `keeps(w)` must be true.
  [[nodiscard]] Variable of(const Variable& w);

  /// Returns the codes of a packed weight. Throws ArgumentError unless they are in `packed_dtype` of the
  /// format and each block has a scale.
  [[nodiscard]] QuantizedTensor unpack(const Tensor& packed) const;
  /// Returns the scales of a packed weight whose ranges come from each input; undefined for others.
  [[nodiscard]] const PackedScales& scales() const noexcept { return scales_; }
  /// Throws ArgumentError as `check_scales`.
  void set_scales(PackedScales scales);

  /// Returns the code of the largest number of each block, f32 [N, K / 32], for a weight in ggml's blocks
  /// (ggml_fit.h). Undefined for the codes of llama.cpp.
  [[nodiscard]] const Tensor& extreme_codes() const noexcept { return extreme_codes_; }
  /// Throws ArgumentError for codes that are 0, infinite or NaN.
  void set_extreme_codes(Tensor codes);
  /// Moves them to the device of the weight.
  void to(Device device) { extreme_codes_ = extreme_codes_.to(device); }

  void save(StateDict& state, const std::string& prefix) const;
  void load(const StateDict& state, const std::string& prefix);
  /// Drops the codes. Call it when the parameters or the range changed.
  void forget();

 private:
  struct Kept {
    const void* node = nullptr;
    std::uint64_t version = 0;
    std::optional<QuantizedTensor> codes;
  };

  [[nodiscard]] bool wants_mask(const Variable& w) const;
  [[nodiscard]] std::optional<QuantizedTensor> kept(const Variable& w) const;
  [[nodiscard]] Grid packed_grid(int rank, Device device) const;

  const QuantParams& params_;
  const QuantizerRange& range_;
  const detail::GridCache& grid_;
  PackedScales scales_;
  Tensor extreme_codes_;
  mutable std::mutex mutex_;  // guards what is kept
  Kept kept_;
};

}  // namespace fq
