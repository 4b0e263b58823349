#pragma once

/// PyTorch's observers (torch.ao.quantization.observer), and torchao's: they watch tensors and choose scale
/// and zero point.
///
///     using namespace fq::torch_ref;
///     MinMaxObserver observer({.dtype = DType::i8, .qscheme = QScheme::per_tensor_symmetric});
///     for (const Tensor& batch : batches) observer.observe(batch);
///     const auto [scale, zero_point] = observer.calculate_qparams();
///
/// An observation is any float tensor; it is read as f32, an empty one changes nothing. With lo =
/// min(min_val, 0) and hi = max(max_val, 0), in f32:
///
/// - symmetric: s = max(-lo, hi) / ((quant_max - quant_min) / 2); z is i64, 0 for i8, 128 for u8, and for u8
///   with a range of one's own floor((quant_min + quant_max) / 2);
/// - affine: s = (hi - lo) / (quant_max - quant_min), z = clamp(quant_min - rne(lo / s)), which is i32.
///
/// s is at least eps. Scale and zero point have shape [1], per channel [channels]. Throws ArgumentError for
/// options that do not go together, a channel axis that is not there, another number of channels than before,
/// and results asked for before the first observation; NumericError for a NaN.

#include <optional>
#include <vector>

#include "fakequant/reference/torchao.h"

namespace fq::torch_ref {

using QParams = torchao::QParams;

/// torch's qschemes: one scale or one a channel, with a free zero point or a fixed one.
enum class QScheme : unsigned char {
  per_tensor_affine,
  per_tensor_symmetric,
  per_channel_affine,
  per_channel_symmetric
};
/// "per_tensor_affine", .. Throws ArgumentError for another name.
[[nodiscard]] QScheme qscheme(std::string_view name);

/// Options of an observer, with PyTorch's names.
struct ObserverOptions {
  /// The codes that scale and zero point are for, i8 or u8: torch's qint8 and quint8.
  DType dtype = DType::u8;
  /// One scale or one a channel, and whether the zero point is free.
  QScheme qscheme = QScheme::per_tensor_affine;
  /// Whether codes have one bit less, which keeps 16-bit sums of some engines from saturating.
  bool reduce_range = false;
  std::optional<int> quant_min = {},
                     quant_max = {};  ///< both or none; they hold 0 and span 256 codes at most
  /// The least scale.
  double eps = 0x1p-23;
};

/// Returns the options. Throws ArgumentError, naming `function`, for a scheme per channel.
[[nodiscard]] ObserverOptions check_per_tensor(ObserverOptions options, const char* function);

/// The code range of the options, and scales and zero points from ranges of values, by the formulas
/// above.
class AffineRule {
 public:
  /// Throws ArgumentError for options that do not go together.
  explicit AffineRule(ObserverOptions options);
  /// Scale and zero point of ranges: `min_val` and `max_val` are f32, of one shape; the results have one
  /// axis.
  [[nodiscard]] QParams choose(const Tensor& min_val, const Tensor& max_val) const;

 private:
  [[nodiscard]] bool is_symmetric() const;

  ObserverOptions options_;
  int quant_min_, quant_max_;
};

/// Shared parts of the four observers of smallest and largest values. For use by one thread at a time.
class RangeObserver {
 public:
  /// Takes an observation into account.
  void observe(const Tensor& x);
  /// Scale and zero point of the range seen so far, by the formulas above.
  [[nodiscard]] QParams calculate_qparams() const;
  /// The ends of the range seen: f32, of rank 0 or [channels]; undefined before the first observation.
  [[nodiscard]] const Tensor& min_val() const noexcept { return min_; }
  [[nodiscard]] const Tensor& max_val() const noexcept { return max_; }
  /// Forgets all observations.
  void reset_min_max_vals() { min_ = max_ = {}; }

 protected:
  RangeObserver(ObserverOptions options, std::optional<int> ch_axis,
                std::optional<double> averaging_constant);
  ~RangeObserver() = default;

 private:
  AffineRule rule_;
  std::optional<int> ch_axis_;
  std::optional<float> averaging_constant_;
  Tensor min_, max_;
};

/// The range is the smallest and largest of all observations.
class MinMaxObserver final : public RangeObserver {
 public:
  /// Throws ArgumentError for a scheme per channel.
  explicit MinMaxObserver(ObserverOptions options = {});
};

/// The range is the first observation's at first; then range += averaging_constant * (the new one - range),
/// each operation rounded.
class MovingAverageMinMaxObserver final : public RangeObserver {
 public:
  /// `averaging_constant` is the weight of a new observation, 0.01 as PyTorch has it. Throws as
  /// MinMaxObserver.
  explicit MovingAverageMinMaxObserver(double averaging_constant = 0.01, ObserverOptions options = {});
};

/// As MinMaxObserver, with a range for each index of `ch_axis`, negative from the back.
class PerChannelMinMaxObserver final : public RangeObserver {
 public:
  /// Throws ArgumentError for a scheme per tensor.
  explicit PerChannelMinMaxObserver(int ch_axis = 0,
                                    ObserverOptions options = {.qscheme = QScheme::per_channel_affine});
};

/// As MovingAverageMinMaxObserver, with a range for each index of `ch_axis`, negative from the back.
class MovingAveragePerChannelMinMaxObserver final : public RangeObserver {
 public:
  explicit MovingAveragePerChannelMinMaxObserver(double averaging_constant = 0.01, int ch_axis = 0,
                                                 ObserverOptions options = {
                                                     .qscheme = QScheme::per_channel_affine});
};

/// A running histogram with equal bins over all observed values. A search finds the range that quantizes
/// with the least squared error, elements spread evenly within their bins. It moves the ends inward by steps
/// of 1e-5 of the mass, the side that skips more bins first, until the error grows. When a new observation
/// widens the range, old counts are spread on the new bins by 16 pieces a bin. Infinite elements are left
/// out.
///
/// Per tensor only. Sums are in f32 where the reference's are, but in another order: results
/// agree except for the last digits. Plain loops, for one tensor at a time.
class HistogramObserver {
 public:
  /// `bins` at least 2.
  explicit HistogramObserver(ObserverOptions options = {}, int bins = 2048);

  /// Takes an observation into account.
  void observe(const Tensor& x);
  /// Scale and zero point of the range that the search finds.
  [[nodiscard]] QParams calculate_qparams() const;
  /// The range seen; meaningless before the first observation.
  [[nodiscard]] float min_val() const noexcept { return min_; }
  [[nodiscard]] float max_val() const noexcept { return max_; }
  /// The counts; empty before the first observation.
  [[nodiscard]] const std::vector<float>& histogram() const noexcept { return histogram_; }

 private:
  AffineRule rule_;
  int bins_;
  std::vector<float> histogram_;  // empty before the first observation
  float min_ = 0, max_ = 0;
};

}  // namespace fq::torch_ref

namespace fq::torchao {

/// Running smallest and largest value of each block of a granularity, input of
/// `choose_qparams_affine_with_min_max` makes scale and zero point. Observations are f32, f16 or bf16 and
/// keep their type; an empty one changes nothing. As in `choose_qparams_affine`, axes of size 1 stay in the
/// shape of the results, and a block of all ones reduces everything. Throws ArgumentError for a granularity
/// that does not fit, blocks in another number than before, results asked for before the first observation.
class AffineQuantizedMinMaxObserver {
 public:
  /// The mapping, the type of the codes, which elements share a scale, and torchao's options.
  AffineQuantizedMinMaxObserver(MappingType mapping_type, IntegerType target_dtype, Granularity granularity,
                                QParamsOptions options = {});

  /// Takes an observation into account.
  void observe(const Tensor& x);
  /// Scale and zero point of each block, of the extremes seen so far.
  [[nodiscard]] QParams calculate_qparams() const;
  /// Undefined before the first observation.
  [[nodiscard]] const Tensor& min_val() const noexcept { return min_; }
  [[nodiscard]] const Tensor& max_val() const noexcept { return max_; }

 private:
  MappingType mapping_type_;
  IntegerType target_dtype_;
  Granularity granularity_;
  QParamsOptions options_;
  Tensor min_, max_;
};

}  // namespace fq::torchao
