#pragma once

/// QuantizerRange: amax, and how it moves.

#include "fakequant/layers/quantizer/settings.h"

namespace fq {

/// The range of a quantizer: given or calibrated, and then fixed; moved by the inputs of training
/// (`running`); or a parameter (the descriptor's `learn_amax`), from the moment it is known. Where each input
/// has its own range there is none, or that of the whole tensor which block scales are multiples of.
///
/// The parameter keeps its identity while its shape stays: optimizers hold it.
class QuantizerRange {
 public:
  /// `settings` are those of the quantizer that owns it, and outlive it.
  explicit QuantizerRange(const QuantizerSettings& settings) : settings_(settings) {}

  /// On the host, but where it is learned on a GPU, or running moved it there; then steps to come write to
  /// it. Without `scale_amax`; undefined before calibration. In `deployed` f32, rank 0 for one range, else a
  /// list of them in row-major order; in `reference` of the shape and type that it was given or calibrated
  /// in: kept axes with 1 for the others, of blocks (blocks, 1) or that of the grid. For dynamic blocks, the
  /// range of the whole tensor.
  [[nodiscard]] Tensor amax() const { return learned_.defined() ? learned_.tensor() : amax_; }
  /// The parameter of learn_amax; undefined without it, and before amax is known.
  [[nodiscard]] const Variable& learned() const noexcept { return learned_; }
  /// What scales are made of: amax in f32 as a list, times `scale_amax`; a learned one is at least 2^-23.
  [[nodiscard]] Tensor used() const;
  /// Throws ArgumentError naming the quantizer where amax is not known.
  void check_known() const;

  /// Throws ArgumentError for a negative, infinite or NaN value, or the wrong number of them; then nothing
  /// changed.
  void set(const Tensor& amax);
  /// The same of ranges that are right: those that a calibrator found, or that were saved.
  void keep(const Tensor& amax);
  /// What a file says: a parameter may have been trained below 0. Undefined for none.
  void load(const Tensor& amax);
  void clear();
  /// When the settings have another descriptor: its amax, if it has one, else what is known while axes and
  /// blocks stay the same.
  void follow(const QuantDescriptor& before);
  /// In place: a step that is captured finds the ranges where it left them.
  void move_towards(const Variable& x);
  /// Another amax for as long as a checkpointed block runs again; returns the one before.
  Tensor exchange(Tensor amax);
  void to(Device device);

 private:
  const QuantizerSettings& settings_;
  Tensor amax_;
  Variable learned_;
  Device device_;  // of the parameter to come
};

}  // namespace fq
