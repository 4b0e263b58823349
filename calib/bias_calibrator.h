#pragma once

/// BiasCalibrator: chooses what an affine quantizer subtracts before it rounds and adds again after.
///
///     BiasCalibrator calibrator(BiasMethod::max_min, 0);  // one for each index of axis 0
///     for (const Tensor& batch : batches) calibrator.collect(batch);
///     const Tensor y = modelopt::fake_tensor_quant(x, amax, calibrator.compute_bias());
///
/// Only functions of reference/ take a bias; quantizers of layers are symmetric or unsigned.

#include <cstdint>
#include <string_view>
#include <vector>

#include "fakequant/core/descriptor_fields.h"
#include "fakequant/core/tensor.h"

namespace fq {

class StateDict;

/// Which bias is chosen.
///
/// - `mean`: the mean of all values of all batches, in double (ModelOpt averages the means of batches, which
///   is the same for batches of one size).
/// - `max_min`: fl(fl(largest + smallest) / 2).
enum class BiasMethod : unsigned char { mean, max_min };

/// The bias of fake_tensor_quant, per tensor or for each index of the kept axes (ModelOpt's BiasCalibrator,
/// whose `axis` names the axes that are reduced). It keeps 16 bytes a range. It is not for use by several
/// threads at once. An error leaves it as it was.
class BiasCalibrator {
 public:
  /// `axis` are the kept axes, none for one bias; they are checked by the first batch.
  explicit BiasCalibrator(BiasMethod method = BiasMethod::mean, Axes axis = {})
      : method_(method), axis_(std::move(axis)) {}

  /// Takes a batch into account: f32, f16, bf16, or f64 rounded to f32, in any layout and on any device.
  /// Empty and `meta` tensors change nothing. Throws NumericError for NaN and Inf, ArgumentError for other
  /// dtypes and when ranges have another shape than before.
  void collect(const Tensor& x);
  /// The bias, on the CPU, in the dtype of the first batch (f32 for f64): the kept axes with 1 for the
  /// others, of rank 0 when that is one element. Throws ArgumentError before the first batch.
  [[nodiscard]] Tensor compute_bias() const;
  /// Forgets every batch.
  void reset();
  /// Whether there was no batch yet.
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }

  /// What was collected, to be saved; empty before a batch.
  [[nodiscard]] StateDict state_dict() const;
  /// Takes back what `state_dict` gave. Throws ArgumentError for the state of another method and for a
  /// damaged one.
  void load_state(const StateDict& state);

 private:
  BiasMethod method_;
  Axes axis_;
  Shape shape_;
  DType dtype_ = DType::f32;
  std::int64_t count_ = 0;              // elements a range
  std::vector<double> first_, second_;  // sums; or largest and smallest
};

}  // namespace fq
