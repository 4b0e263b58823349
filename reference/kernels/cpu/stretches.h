#pragma once

/// Tensors cut into stretches, with the parameters that broadcast to them.

#include <algorithm>
#include <array>
#include <functional>

#include "fakequant/core/tensor.h"
#include "fakequant/reference/kernels/cpu/fake_quant_kernels.h"

namespace fq::cpu {

/// Loops up to this many elements stay on one thread.
inline constexpr std::int64_t parallel_stretch = 65536;

/// Floats between the end of one column and the begin of the next, so that columns of a power of two do not
/// share the sets of a cache.
inline constexpr std::int64_t column_skew = 112;

using RunStretch = std::function<void(const Stretch&, const Columns&)>;

/// Calls run(stretch, begin) for stretches of up to `length` elements, a multiple of 8, from element `begin`
/// of x on, in parallel; `shared` is the number of elements.
void run_stretches(const Tensor& x, std::int64_t length, Tensor& y, Tensor* mask,
                   const std::function<void(const Stretch&, std::int64_t)>& run);
/// Calls run(stretch, columns) for stretches of x, in parallel: each has its own part of x, y and mask. All
/// share the one parameter of `columns`.
void run_stretches(const Tensor& x, const Columns& columns, Tensor& y, Tensor* mask, const RunStretch& run);
/// As above, with columns that begin at the stretch's parameters: arrays of the elements of a row-major
/// tensor of shape `range`, padded to whole groups, which broadcasts against x.
void run_stretches(const Tensor& x, const Shape& range, const Columns& columns, Tensor& y, Tensor* mask,
                   const RunStretch& run);

// Arrays of one float for each range, for kernels.

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
