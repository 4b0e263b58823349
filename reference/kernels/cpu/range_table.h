#pragma once

/// Arrays of one float a range, for kernels.

#include <algorithm>
#include <array>

#include "fakequant/reference/kernels/cpu/stretches.h"

namespace fq::cpu {

/// Arrays of one float a range, padded to whole groups, one group where there is no range; of a single range
/// without allocation.
class RangeTable {
 public:
  RangeTable(int columns, std::int64_t count)
      : length_(padded(std::max<std::int64_t>(count, 1))),
        stride_(length_ + (length_ > vector_group() ? column_skew : 0)) {
    if (columns * stride_ > static_cast<std::int64_t>(few_.size())) many_ = Tensor::empty({columns, stride_});
  }
  [[nodiscard]] float* column(int i) {
    return (many_.defined() ? many_.mutable_data<float>() : few_.data()) + i * stride_;
  }
  /// `with` has no more elements than there are ranges; one is always taken.
  [[nodiscard]] float* filled(int i, const Tensor& with) {
    float* to = column(i);
    std::copy_n(with.data<float>(), with.numel(), to);
    std::fill(to + with.numel(), to + length_, 1.0f);
    return to;
  }

 private:
  std::int64_t length_, stride_;
  Tensor many_;
  std::array<float, 80> few_;
};

}  // namespace fq::cpu
