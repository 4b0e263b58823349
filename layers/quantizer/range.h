#pragma once

/// QuantizerRange: amax, and how it moves.
///
///     quantizer.set_amax(Tensor::scalar(4));
///     const QuantizerRange& range = quantizer.range();
///     range.amax();     // what was given, calibrated or learned
///     range.used();     // what scales are made of: times scale_amax

#include <vector>

#include "fakequant/layers/quantizer/quant_params.h"

namespace fq {

/// The part of a range that grows, on the host: its ranges, and 1 for each that still grows.
struct RangeGrowth {
  std::vector<float> amax, growing;
};

/// The range of a quantizer: given or calibrated, and then fixed; moved by the inputs of training
/// (`running`); or a parameter (the descriptor's `learn_amax`), from the moment it is known. Where each input
/// has its own range there is none, or that of the whole tensor which block scales are multiples of.
///
/// A range that is zero when it is calibrated or set grows in training: a branch that starts at zero is not
/// multiplied by 0. A fixed or running range is then at least the largest magnitude of each batch. A learned
/// range starts there, is at least bits / 8 of it, and is trained. Channels and blocks grow by themselves.
///
/// The parameter keeps its identity while its shape stays: optimizers hold it. A quantizer's own functions
/// change a range; users read it here.
class QuantizerRange {
 public:
  /// `params` belong to the quantizer, and outlive the range.
  explicit QuantizerRange(const QuantParams& params) : params_(params) {}

  /// The range, without `scale_amax`; undefined before calibration. For dynamic blocks it is the range of the
  /// whole tensor.
  ///
  /// In `deployed` it is f32, of rank 0 for one range, else a list of them in row-major order; in `reference`
  /// it has the shape and type that it was given or calibrated in: kept axes with 1 for the others, of blocks
  /// (blocks, 1) or that of the grid. It lies on the host, but where it is learned on a GPU, or running moved
  /// it there; then steps to come write to it.
  [[nodiscard]] Tensor amax() const { return learned_.defined() ? learned_.tensor() : amax_; }
  /// The steps that `set_scale` was given, where fl(amax / bound) is not theirs: f32, in the shape of `amax`;
  /// undefined otherwise, and from the moment that amax is set, learned or moved.
  [[nodiscard]] const Tensor& scale() const noexcept { return scale_; }
  /// The parameter of learn_amax; undefined without it, and before amax is known.
  [[nodiscard]] const Variable& learned() const noexcept { return learned_; }
  /// What scales are made of: amax in f32 as a list, times `scale_amax`; a learned one is at least 2^-23.
  [[nodiscard]] Tensor used() const;
  /// Whether all of the range is zero (at most 2^-24), so that its quantizer passes floats. Never in
  /// `reference`, which keeps ModelOpt's results for such ranges.
  [[nodiscard]] bool is_zero() const;
  /// Whether some of the range was zero and grows in training.
  [[nodiscard]] bool grows() const;
  /// 1 for each range that grows, 0 for the others: f32, in the shape of `amax`; undefined if none grows.
  [[nodiscard]] const Tensor& growing() const noexcept { return growing_; }
  /// Throws ArgumentError naming the quantizer where amax is not known.
  void check_known() const;

  /// Sets the range. Throws ArgumentError for a negative, infinite or NaN value, or the wrong number of them;
  /// then nothing changed.
  void set(const Tensor& amax);
  /// Sets the range by the steps of the grid: see TensorQuantizer::set_scale.
  void set_scale(const Tensor& scale);
  /// Sets ranges that are known to be right: those that a calibrator found, or that were saved.
  void keep(const Tensor& amax);
  /// Sets larger ranges. A range that grows still grows.
  void raise(const Tensor& amax);
  /// Sets what a file says, where a parameter may have been trained below 0; an undefined tensor is for none.
  /// `growing` is undefined in files of older versions.
  void load(const Tensor& amax, const Tensor& growing);
  /// Forgets the range.
  void clear();
  /// Updates the range when the descriptor changed. The range becomes the amax of the descriptor. Without
  /// one, it stays while axes and blocks stay the same.
  void follow(const QuantDescriptor& before);
  /// Moves the range towards that of x by the momentum, in place: a step that is captured finds the ranges
  /// where it left them.
  void move_towards(const Variable& x);
  /// Raises the ranges that grow to the ranges of x, in place.
  void grow(const Variable& x);
  /// Returns the state of a range that grows, or sets it in place.
  [[nodiscard]] RangeGrowth growth() const;
  void set_growth(const RangeGrowth& growth);
  /// Puts another amax in place for as long as a checkpointed block runs again; returns the one before.
  Tensor exchange(Tensor amax);
  /// Moves a learned range, or one to come, to that device.
  void to(Device device);

 private:
  [[nodiscard]] Tensor ranges_of(const Tensor& x) const;
  void grow_to(const Tensor& batch);
  /// Ranges that are zero grow from now on.
  void mark_zeros();

  const QuantParams& params_;
  Tensor amax_, scale_, growing_;
  bool zero_ = false;  // whether all of amax was zero when the host last knew it
  Variable learned_;
  Device device_;  // of the parameter to come
};

}  // namespace fq
