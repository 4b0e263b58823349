#pragma once

/// QuantizerRange: the amax of a quantizer, and its changes in training.
///
///     quantizer.set_amax(Tensor::scalar(4));
///     const QuantizerRange& range = quantizer.range();
///     range.amax();     // given, calibrated or learned
///     range.used();     // for scales: amax times scale_amax

#include <vector>

#include "fakequant/layers/quantizer/quant_params.h"

namespace fq {

/// Ranges of a quantizer on the host. `growing` is 1 for each range that still grows, else 0.
struct RangeGrowth {
  std::vector<float> amax, growing;
};

/// The range of a quantizer. There are three kinds: given or calibrated, and then fixed; moved by the inputs
/// of training (`running`); or a parameter once it is known (the descriptor's `learn_amax`). If each input
/// has its own range, there is no stored range. Only block scales relative to the whole tensor keep its
/// range.
///
/// A range that is zero when it is calibrated or set grows in training, because a branch that starts at zero
/// must not be multiplied by 0. A fixed or running range is then at least the largest magnitude of each
/// batch. A learned range starts at the largest magnitude, is at least bits / 8 of it, and is trained.
/// Channels and blocks grow independently.
///
/// The parameter keeps its identity while its shape stays the same, because optimizers hold it. Only the
/// quantizer's own functions change a range; users read it here.
class QuantizerRange {
 public:
  /// `params` belong to the owning quantizer, and must outlive the range.
  explicit QuantizerRange(const QuantParams& params) : params_(params) {}

  /// Returns the range without `scale_amax`; undefined before calibration. For dynamic blocks it is the range
  /// of the whole tensor.
  ///
  /// In `deployed` it is f32: of rank 0 for one range, otherwise a list in row-major order. In `reference` it
  /// keeps the given or calibrated shape and type. That is the kept axes with 1 for the other axes, and for
  /// blocks (blocks, 1) or the shape of the grid. The tensor is on the host, unless it is learned on a GPU,
  /// or `running` moved it there. Later training steps then write to this tensor.
  [[nodiscard]] Tensor amax() const { return learned_.defined() ? learned_.tensor() : amax_; }
  /// Returns the steps given to `set_scale` if they differ from fl(amax / bound): f32, in the shape of
  /// `amax`. Undefined otherwise, and after amax is set, learned or moved.
  [[nodiscard]] const Tensor& scale() const noexcept { return scale_; }
  /// Returns the parameter of learn_amax; undefined without learn_amax, and before amax is known.
  [[nodiscard]] const Variable& learned() const noexcept { return learned_; }
  /// Returns amax times `scale_amax`, the base of all scales: f32, as a list. A learned amax is at least
  /// 2^-23 here.
  [[nodiscard]] Tensor used() const;
  /// Whether all ranges are zero (at most 2^-24), so that the quantizer passes floats. Always false in
  /// `reference`, which keeps ModelOpt's results for such ranges.
  [[nodiscard]] bool is_zero() const;
  /// Whether some range was zero and grows in training.
  [[nodiscard]] bool grows() const;
  /// Returns 1 for each range that grows, 0 for the others: f32, in the shape of `amax`; undefined if none
  /// grows.
  [[nodiscard]] const Tensor& growing() const noexcept { return growing_; }
  /// Throws ArgumentError naming the quantizer if amax is not known.
  void check_known() const;

  /// Sets the range. Throws ArgumentError for a negative, infinite or NaN value, or a wrong number of values;
  /// then nothing changes.
  void set(const Tensor& amax);
  /// Sets the range from the steps of the grid: see TensorQuantizer::set_scale.
  void set_scale(const Tensor& scale);
  /// Sets ranges without checks, for ranges from a calibrator or from a file.
  void keep(const Tensor& amax);
  /// Sets larger ranges. A range that grows still grows.
  void raise(const Tensor& amax);
  /// Sets the range from a file, where a trained parameter may be below 0. An undefined tensor clears the
  /// range. `growing` is undefined in files of older versions.
  void load(const Tensor& amax, const Tensor& growing);
  /// Clears the range.
  void clear();
  /// Adapts the range to a change of the descriptor. The range becomes the new descriptor's amax, if it has
  /// one. Otherwise a known range stays while axes and blocks stay the same.
  void follow(const QuantDescriptor& before);
  /// Moves the range towards the range of x by the momentum. It works in place, so that captured steps find
  /// the range at the same address.
  void move_towards(const Variable& x);
  /// Raises the ranges that grow to the ranges of x, in place.
  void grow(const Variable& x);
  /// Returns all ranges and their growth flags.
  [[nodiscard]] RangeGrowth growth() const;
  /// Sets all ranges and their growth flags, in place.
  void set_growth(const RangeGrowth& growth);
  /// Replaces amax while a checkpointed block runs again, and returns the previous amax.
  Tensor exchange(Tensor amax);
  /// Moves a learned range to a device. A later learned range is placed there too.
  void to(Device device);

 private:
  [[nodiscard]] Tensor batch_ranges(const Tensor& x) const;
  void grow_to_batch(const Tensor& batch);
  /// Marks the ranges that are zero as growing.
  void mark_zeros();

  const QuantParams& params_;
  Tensor amax_, scale_, growing_;
  bool zero_ = false;  // whether all ranges were zero when the host last read them
  Variable learned_;
  Device device_;  // device of a later parameter
};

}  // namespace fq
