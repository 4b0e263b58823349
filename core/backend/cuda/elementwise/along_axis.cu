#include "fakequant/core/backend/cuda/loops/groups.cuh"
#include "fakequant/core/backend/cuda/loops/launch.cuh"
#include "fakequant/core/backend/cuda/loops/reduction_shape.h"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/backend/transfer.h"
#include "fakequant/core/blocks/detail/walk.h"
#include "fakequant/core/detail/moves.h"

namespace fq::cuda {
namespace {

/// Maps element i of y, in memory order, to its position around the axis.
struct Fibres {
  std::int64_t rows, size, inner;

  struct Place {
    std::int64_t row;    ///< index along the axis of y
    std::int64_t fibre;  ///< first element of the fibre of x that it reads
  };
  FQ_HD Place of(std::int64_t i) const {
    const std::int64_t line = quotient(i, inner), outer = quotient(line, rows);
    return {line - outer * rows, outer * size * inner + (i - line * inner)};
  }
};

Fibres fibres(const Tensor& x, int axis, std::int64_t rows) {
  const AxisView view = fq::detail::memory_view(x.shape(), x.layout(), axis);
  return {rows, view.size, view.inner};
}

template <class T>
// The indices are constants of the operator. In a capture, the copy is made outside of the graph.
Tensor uploaded(const std::vector<T>& values, Device device) {
  return fq::detail::constant(Tensor::from(values, {static_cast<std::int64_t>(values.size())}), device);
}

template <class Word>
struct TakeWords {
  const Word* x;
  Word* y;
  const std::int64_t* from;
  Fibres fibres;
  Word fill;
  FQ_HD void operator()(std::int64_t i) const {
    const auto [row, fibre] = fibres.of(i);
    y[i] = from[row] < 0 ? fill : x[fibre + from[row] * fibres.inner];
  }
};

/// Takes bits of a mask, byte by byte of y.
struct TakeBits {
  const std::uint8_t* x;
  std::uint8_t* y;
  const std::int64_t* from;
  Fibres fibres;
  FQ_HD void operator()(std::int64_t first, int count) const {
    unsigned bits = 0;
    for (int j = 0; j < count; ++j) {
      // A thread writes one byte of y, so that no two threads write the same byte.
      const auto [row, fibre] = fibres.of(first + j);
      if (from[row] >= 0 && get_bit(x, fibre + from[row] * fibres.inner)) bits |= 1u << j;
    }
    y[first / group_size] = static_cast<std::uint8_t>(bits);
  }
};

// x: [outer, size, inner], y: [outer, rows, inner]. One thread per element of y.
template <class T>
struct MixRows {
  const T* x;
  T* y;
  const std::int64_t *begin, *from;
  const double* weight;
  Fibres fibres;
  FQ_HD void operator()(std::int64_t i) const {
    const auto [row, fibre] = fibres.of(i);
    // In the host's order and in f64, so the bits are the same.
    double sum = 0.0;
    for (std::int64_t k = begin[row]; k < begin[row + 1]; ++k)
      sum += weight[k] * static_cast<double>(x[fibre + from[k] * fibres.inner]);
    y[i] = static_cast<T>(sum);
  }
};

}  // namespace

void take(const Tensor& x, int axis, const std::vector<std::int64_t>& from, double fill, Tensor& y) {
  if (y.numel() == 0) return;
  const Device device = x.device();
  const Fibres where = fibres(x, axis, static_cast<std::int64_t>(from.size()));
  const Tensor elements = uploaded(from, device);
  const auto* list = device_data<std::int64_t>(elements);
  if (bit_width(x.dtype()) == 1)
    return launch_groups(
        device, y.numel(),
        TakeBits{device_data<std::uint8_t>(x), mutable_device_data<std::uint8_t>(y), list, where});
  fq::detail::visit_fill_word(x.dtype(), fill, [&]<class Word>(Word word) {
    launch_each(device, y.numel(),
                TakeWords<Word>{device_data<Word>(x), mutable_device_data<Word>(y), list, where, word});
  });
}

void mix(const Tensor& x, int axis, const fq::detail::AxisMix& mix, Tensor& y) {
  if (y.numel() == 0) return;
  const Device device = x.device();
  const Tensor begin = uploaded(mix.begin, device), from = uploaded(mix.from, device),
               weight = uploaded(mix.weight, device);
  visit_float(x.dtype(), [&]<class T>(T) {
    launch_each(device, y.numel(),
                MixRows<T>{device_data<T>(x), mutable_device_data<T>(y), device_data<std::int64_t>(begin),
                           device_data<std::int64_t>(from), device_data<double>(weight),
                           fibres(x, axis, mix.rows())});
  });
}

}  // namespace fq::cuda
