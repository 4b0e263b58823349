#pragma once

/// Sums of products with their numbers per channel, for kernels that read them as floats or codes.

#include <string>
#include <variant>

#include "fakequant/core/accumulator.h"
#include "fakequant/core/backend/cuda/codes/sums.cuh"
#include "fakequant/core/backend/cuda/loops/atomics.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/error.h"

namespace fq::cuda {

/// Per-channel arrays: scale (one or one per channel), scale / step, shift / step. One small launch prepares
/// them, so that the kernel over the sums has no division.
struct ChannelNumbers {
  const float *scale, *shift, *step;  // the last two may be null
  bool one_scale;
  float *scales, *multipliers, *offsets;
  Alarm alarm;

  FQ_HD void operator()(std::int64_t c) const {
    const float s = scale[one_scale ? 0 : c];
    scales[c] = s;
    if (step == nullptr) return;
    multipliers[c] = scalar::div_(s, *step);
    if (shift == nullptr) return;
    offsets[c] = scalar::div_(shift[c], *step);
    if (scalar::is_nan_(s) || scalar::is_nan_(shift[c])) raise(alarm);
  }
};

/// Sums together with their per-channel numbers, which it owns.
class ChannelReader {
 public:
  /// Without a grid, the sums can only be read as floats.
  ChannelReader(const Tensor& sums, int axis, const Tensor& bias, const Tensor& scale, const Tensor& shift,
                const Grid* grid, const std::string& nan_text)
      : source_{device_data<std::int32_t>(sums),
                device_data<std::int32_t>(bias),
                device_data<float>(scale),
                device_data<float>(shift),
                nullptr,
                nullptr,
                AxisBlocks::of(sums.shape(), sums.layout(), axis)} {
    // Rows of the table begin at 16 bytes, for vector loads.
    const std::int64_t channels = sums.dim(axis), row = (channels + 3) / 4 * 4;
    // Values need only the scales, which are already one per channel.
    if (grid == nullptr && scale.numel() == channels) return;
    numbers_ = Tensor::empty({3, row}, DType::f32, sums.device());
    auto* numbers = mutable_device_data<float>(numbers_);
    const Alarm nan = grid != nullptr && shift.defined() ? alarm(sums.device(), nan_text) : Alarm{};
    launch_each(sums.device(), channels,
                ChannelNumbers{source_.scale, source_.shift,
                               grid != nullptr ? device_data<float>(grid->scale) : nullptr,
                               scale.numel() == 1, numbers, numbers + row, numbers + 2 * row, nan});
    source_.scale = numbers;
    source_.multiplier = numbers + row;
    source_.offset = shift.defined() ? numbers + 2 * row : nullptr;
  }
  ChannelReader(const ProductSums& x, const Grid* grid, const std::string& nan_text)
      : ChannelReader(x.sums, x.axis, x.bias, x.scale, {}, grid, nan_text) {}
  ChannelReader(const NormalizedSums& x, const Grid* grid, const std::string& nan_text)
      : ChannelReader(x.sums, x.axis, x.bias, x.factor, x.shift, grid, nan_text) {}
  /// Reads the values of product sums or normalized sums.
  explicit ChannelReader(const Accumulator& x) : ChannelReader(std::visit(OfValue{}, x.value)) {}

  [[nodiscard]] const ChannelSums& source() const { return source_; }

 private:
  struct OfValue {
    ChannelReader operator()(const ProductSums& x) const { return {x, nullptr, {}}; }
    ChannelReader operator()(const NormalizedSums& x) const { return {x, nullptr, {}}; }
    template <class Other>
    ChannelReader operator()(const Other&) const {
      throw BackendError("[cuda] sums without one number per channel reached a kernel for channels");
    }
  };

  ChannelSums source_;
  Tensor numbers_;
};

}  // namespace fq::cuda
