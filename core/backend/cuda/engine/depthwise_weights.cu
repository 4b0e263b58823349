#include <algorithm>

#include "fakequant/core/backend/cuda/engine/conv.h"
#include "fakequant/core/backend/cuda/engine/vec4.cuh"
#include "fakequant/core/backend/cuda/loops/channels.cuh"
#include "fakequant/core/backend/cuda/loops/divisor.h"
#include "fakequant/core/backend/cuda/loops/sums.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"

namespace fq::cuda {
namespace {

/// Parts of the pixels of y: enough parts for every GPU, each short enough for sums of floats.
struct PixelParts {
  std::int64_t pixels, length, count;

  explicit PixelParts(std::int64_t all)
      : pixels(all),
        // At most 1024 parts, of at least 64 pixels. They depend on the shape only, and so do the bits.
        length(std::max<std::int64_t>(64, (all + 1023) / 1024)),
        count((all + length - 1) / length) {}
};

/// Computes [parts, taps, channels]: the contribution of a part's pixels to four channels of a tap.
template <class T>
struct DepthwiseWeightParts {
  LoadFloats<T> load;
  const T *x, *dy;
  float* partial;
  ConvShape conv;
  PixelParts parts;
  Divisor channels, taps, kernel_width, image, width;  ///< groups of four channels; pixels of y

  FQ_HD void operator()(std::int64_t item) const {
    std::int64_t part = item;
    const std::int64_t c = 4 * channels.take_remainder(part), all = 4 * channels.value;
    std::int64_t ky = taps.take_remainder(part);
    const std::int64_t kx = kernel_width.take_remainder(ky);
    const std::int64_t begin = part * parts.length;
    const std::int64_t end = begin + parts.length < parts.pixels ? begin + parts.length : parts.pixels;
    // The position of pixel `begin` in y: image, row and column.
    std::int64_t n = begin;
    std::int64_t oy = image.take_remainder(n), ox = width.take_remainder(oy);
    float sums[4] = {};
    for (std::int64_t p = begin; p < end; ++p) {
      const std::int64_t iy = oy * conv.stride[0] - conv.padding[0] + ky * conv.dilation[0],
                         ix = ox * conv.stride[1] - conv.padding[1] + kx * conv.dilation[1];
      if (iy >= 0 && iy < conv.h && ix >= 0 && ix < conv.w) {
        float v[4], g[4];
        load(x + ((n * conv.h + iy) * conv.w + ix) * all + c, v);
        load(dy + p * all + c, g);
        for (int j = 0; j < 4; ++j) sums[j] = multiply_add(v[j], g[j], sums[j]);
      }
      // Advances to the next pixel without division.
      if (++ox < conv.ow) continue;
      ox = 0;
      if (++oy < conv.oh) continue;
      oy = 0;
      ++n;
    }
    store_vec4(partial + 4 * item, sums);
  }
};

// The parts are added in pairs of floats (PairSum), which keep about twice the bits of an f32 sum.
struct AddPart {
  const float* partial;
  FQ_HD void operator()(PairSum& sum, std::int64_t i, std::int64_t) const { sum.add(partial[i]); }
};

struct PutTap {
  float* dw;
  Divisor channels;
  std::int64_t taps;
  FQ_HD void operator()(std::int64_t i, const PairSum& sum) const {
    std::int64_t tap = i;
    const std::int64_t c = channels.take_remainder(tap);
    dw[c * taps + tap] = sum.high + sum.low;
  }
};

}  // namespace

void depthwise_backward_weights(const ConvShape& s, const void* x, const void* dy, DType type, float* dw,
                                Device device) {
  const PixelParts parts(s.n * s.oh * s.ow);
  const std::int64_t taps = s.kh * s.kw, sums = taps * s.c;
  Storage scratch(parts.count * sums * static_cast<std::int64_t>(sizeof(float)), device);
  auto* partial = mutable_device_data<float>(scratch);
  visit_factor(type, [&]<class T>(T) {
    note_read(x, numel(s.x_shape()) * static_cast<std::int64_t>(sizeof(T)));
    note_read(dy, numel(s.y_shape()) * static_cast<std::int64_t>(sizeof(T)));
    launch_each(device, parts.count * sums / 4,
                DepthwiseWeightParts<T>{{},
                                        static_cast<const T*>(x),
                                        static_cast<const T*>(dy),
                                        partial,
                                        s,
                                        parts,
                                        Divisor(s.c / 4),
                                        Divisor(taps),
                                        Divisor(s.kw),
                                        Divisor(std::max<std::int64_t>(s.oh * s.ow, 1)),
                                        Divisor(std::max<std::int64_t>(s.ow, 1))});
  });
  note_written(dw, sums * 4);
  reduce_channels(device, {sums, 1, parts.count * sums},
                  SumTerms<PairSum, AddPart>{{device_data<float>(scratch)}}, PutTap{dw, Divisor(s.c), taps});
}

}  // namespace fq::cuda
