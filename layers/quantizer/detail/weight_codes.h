#pragma once

/// WeightCodes: the codes of a layer's weight, kept while the weight stays as it is.

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

/// Of a float weight, its codes until weight or grid change; of a weight that holds packed codes
/// (compress.h), the scales where ranges would come from each input; of a weight in ggml's blocks, what their
/// steps are made of. Safe to ask from several threads.
class WeightCodes {
 public:
  /// Of the quantizer that owns it; all of them outlive it.
  WeightCodes(const QuantParams& params, const QuantizerRange& range, const detail::GridCache& grid)
      : params_(params), range_(range), grid_(grid) {}

  /// Whether codes of w are kept: w is a float parameter, and its quantizer gives codes without looking on.
  [[nodiscard]] bool keeps(const Variable& w) const;
  /// What quantizing w now would be; none where its codes are kept already, or never.
  [[nodiscard]] std::optional<QuantizeRequest> request(const Variable& w) const;
  /// Keeps the codes that such a request gave.
  void keep(const Variable& w, QuantizedTensor codes);
  /// The codes of w, which `keeps` must allow, with the gradient of quantizing it.
  [[nodiscard]] Variable of(const Variable& w);

  /// The codes of a packed weight. Throws ArgumentError when they are not in `packed_dtype` of the format,
  /// and when there is not a scale for each block.
  [[nodiscard]] QuantizedTensor unpack(const Tensor& packed) const;
  /// The scales that a packed weight has of its own, where ranges come from each input; elsewhere none.
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
  /// When settings or the range changed.
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
