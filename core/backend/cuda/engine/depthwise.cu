#include "fakequant/core/backend/cuda/engine/conv.h"
#include "fakequant/core/backend/cuda/engine/vec4.cuh"
#include "fakequant/core/backend/cuda/loops/divisor.h"
#include "fakequant/core/backend/cuda/loops/launch.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/storage.h"

namespace fq::cuda {
namespace {

/// One axis of the images that are read: x in the forward pass, dy in the backward pass.
struct DepthwiseAxis {
  int size, taps, stride, padding, dilation;
  Divisor by_stride;

  [[nodiscard]] static DepthwiseAxis of(const ConvShape& s, std::size_t axis, bool back) {
    const std::int64_t sizes[][2] = {{s.h, s.w}, {s.oh, s.ow}};
    return {static_cast<int>(sizes[back ? 1 : 0][axis]),
            static_cast<int>(axis == 0 ? s.kh : s.kw),
            static_cast<int>(s.stride[axis]),
            static_cast<int>(s.padding[axis]),
            static_cast<int>(s.dilation[axis]),
            Divisor(s.stride[axis])};
  }
  /// Returns the index that tap k of output index `at` reads; -1 outside of the image.
  template <bool back>
  [[nodiscard]] FQ_HD int source(int at, int k) const {
    if (!back) {
      const int from = at * stride - padding + k * dilation;
      return from >= 0 && from < size ? from : -1;
    }
    // Backward: pixel `at` of dx was read by window (at + padding - k * dilation) / stride, if that is whole.
    const int reached = at + padding - k * dilation;
    if (reached < 0) return -1;
    const int from = by_stride.quotient(reached);
    return from * stride == reached && from < size ? from : -1;
  }
};

/// Transposes weights [c, taps] to [taps, c] in the type of the sums.
template <class Load, class Sum>
// Neighbouring threads have neighbouring channels. With [taps, c] they read neighbouring weights.
struct TransposeTaps {
  Load load;
  const typename Load::Word* w;
  Sum* out;
  Divisor channels;
  std::int64_t taps;
  FQ_HD void operator()(std::int64_t i) const {
    std::int64_t tap = i;
    const std::int64_t c = channels.take_remainder(tap);
    out[i] = load.one(w[c * taps + tap]);
  }
};

/// Computes four channels of one output pixel.
template <class Load, class Sum, bool back>
struct DepthwiseTaps {
  Load load;
  const typename Load::Word* x;
  const Sum* w;
  Sum* out;
  DepthwiseAxis rows, columns;
  Divisor channels, height, width;  ///< groups of four channels; height and width of the output

  FQ_HD void operator()(std::int64_t item) const {
    std::int64_t n = item;
    const std::int64_t c = 4 * channels.take_remainder(n), all = 4 * channels.value;
    const int at_x = static_cast<int>(width.take_remainder(n)),
              at_y = static_cast<int>(height.take_remainder(n));
    const auto* image = x + n * rows.size * columns.size * all + c;
    const int step = static_cast<int>(all);
    const Sum* taps = w + c;
    Sum sums[4] = {};
    for (int ky = 0; ky < rows.taps; ++ky) {
      const int from_y = rows.source<back>(at_y, ky);
      if (from_y < 0) continue;
      for (int kx = 0; kx < columns.taps; ++kx) {
        const int from_x = columns.source<back>(at_x, kx);
        if (from_x < 0) continue;
        Sum v[4];
        load(image + (from_y * columns.size + from_x) * step, v);
        // Taps in (ky, kx) order; the order of these additions is part of a float result.
        const auto weights = load_vec4(taps + (ky * columns.taps + kx) * step);
        for (int j = 0; j < 4; ++j) sums[j] = multiply_add(v[j], weights.v[j], sums[j]);
      }
    }
    store_vec4(out + 4 * item, sums);
  }
};

template <class Load, class Sum>
Storage transposed_taps(const ConvShape& s, Load load, const void* w, Device device) {
  const std::int64_t taps = s.kh * s.kw;
  Storage out(s.c * taps * static_cast<std::int64_t>(sizeof(Sum)), device);
  launch_each(device, s.c * taps,
              TransposeTaps<Load, Sum>{load, static_cast<const typename Load::Word*>(w),
                                       mutable_device_data<Sum>(out), Divisor(s.c), taps});
  return out;
}

template <bool back, class LoadX, class LoadW, class Sum>
void depthwise(const ConvShape& s, LoadX load, const void* x, LoadW load_w, const void* w, Sum* out,
               Device device) {
  const Storage weights = transposed_taps<LoadW, Sum>(s, load_w, w, device);
  note_read(
      x, numel(back ? s.y_shape() : s.x_shape()) * static_cast<std::int64_t>(sizeof(typename LoadX::Word)));
  note_written(out, numel(back ? s.x_shape() : s.y_shape()) * static_cast<std::int64_t>(sizeof(Sum)));
  const std::int64_t height = back ? s.h : s.oh, width = back ? s.w : s.ow;
  launch_each(device, s.n * height * width * (s.c / 4),
              DepthwiseTaps<LoadX, Sum, back>{load, static_cast<const typename LoadX::Word*>(x),
                                              device_data<Sum>(weights), out, DepthwiseAxis::of(s, 0, back),
                                              DepthwiseAxis::of(s, 1, back), Divisor(s.c / 4),
                                              Divisor(height), Divisor(width)});
}

template <bool back>
void depthwise_floats(const ConvShape& s, const void* x, const void* w, DType type, float* out,
                      Device device) {
  visit_factor(type,
               [&]<class T>(T) { depthwise<back>(s, LoadFloats<T>{}, x, LoadFloats<T>{}, w, out, device); });
}

}  // namespace

// Sizes below 2^30 keep the index arithmetic in int. c % 4 == 0 is required by the vector loads.
bool takes_depthwise(const ConvShape& s) {
  const auto fits = [](std::int64_t size) { return size < std::int64_t{1} << 30; };
  return s.groups == s.c && s.o == s.c && s.c % 4 == 0 && s.c > 0 && s.kh * s.kw > 1 &&
         fits(s.h * s.w * s.c) && fits(s.oh * s.ow * s.c) && fits(s.c * s.kh * s.kw) &&
         fits(s.oh * s.stride[0] + s.padding[0] + s.kh * s.dilation[0]) &&
         fits(s.ow * s.stride[1] + s.padding[1] + s.kw * s.dilation[1]);
}

void depthwise_forward(const ConvShape& s, const void* x, const void* w, DType type, float* y,
                       Device device) {
  depthwise_floats<false>(s, x, w, type, y, device);
}

void depthwise_backward_data(const ConvShape& s, const void* dy, const void* w, DType type, float* dx,
                             Device device) {
  depthwise_floats<true>(s, dy, w, type, dx, device);
}

void depthwise_codes(const ConvShape& s, bool transposed, const Codes& x, const Codes& w, std::int32_t* sums,
                     Device device) {
  const LoadBytes own(x.dtype), weights(w.dtype);
  transposed ? depthwise<true>(s, own, x.data, weights, w.data, sums, device)
             : depthwise<false>(s, own, x.data, weights, w.data, sums, device);
}

}  // namespace fq::cuda
