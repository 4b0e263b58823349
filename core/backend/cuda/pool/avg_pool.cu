#include <type_traits>

#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/backend/cuda/pool/pool.cuh"

namespace fq::cuda {
namespace {

using fq::detail::Covering;
using fq::detail::Window;

/// Average of floats, or of codes times their scale.
// x: [n, h, w, c], y: [n, oh, ow, c]. One thread per output pixel and up to eight channels.
template <class From, class T>
struct Average {
  PoolSizes s;
  bool include_padding;
  RowGroups groups;
  const From* x;
  const float* scale;  // for codes
  T* y;

  FQ_HD void operator()(std::int64_t item) const {
    const PixelPart p(groups, s.oh, s.ow, item);
    const Window window(s, p.row, p.column);
    // In (h, w) order, as on the host and in ONNX Runtime.
    T sum[group_size] = {};
    for (std::int64_t h = window.top; h < window.bottom; ++h)
      for (std::int64_t w = window.left; w < window.right; ++w) {
        T v[group_size];
        load_converted(x + pixel_offset(p.image, s.h, s.w, h, w, s.c) + p.channel, p.count, v);
        for (int k = 0; k < group_size; ++k)
          if (k < p.count) sum[k] += std::is_same_v<From, T> ? v[k] : v[k] * static_cast<T>(*scale);
      }
    const auto pixels = static_cast<T>(include_padding ? window.padded_pixels(s) : window.pixels());
    // A division, as on the host: a multiplication by 1 / pixels would round differently.
    for (int k = 0; k < group_size; ++k) sum[k] /= pixels;
    store_group(y + pixel_offset(p.image, s.oh, s.ow, p.row, p.column, s.c) + p.channel, p.count, sum);
  }
};

template <class T>
// One thread per pixel and eight channels of dx adds all windows that cover the pixel.
struct AverageBackward {
  PoolSizes s;
  bool include_padding;
  RowGroups groups;
  const T* dy;
  T* dx;

  FQ_HD void operator()(std::int64_t item) const {
    const PixelPart p(groups, s.h, s.w, item);
    Covering rows{s.kh, s.sh, s.oh}, columns{s.kw, s.sw, s.ow};
    rows.seek(p.row + s.ph);
    columns.seek(p.column + s.pw);
    T sum[group_size] = {};
    for (std::int64_t i = rows.begin; i < rows.end; ++i)
      for (std::int64_t j = columns.begin; j < columns.end; ++j) {
        const Window window(s, i, j);
        const T share = T{1} / static_cast<T>(include_padding ? window.padded_pixels(s) : window.pixels());
        T g[group_size];
        load_group(dy + pixel_offset(p.image, s.oh, s.ow, i, j, s.c) + p.channel, p.count, g);
        for (int k = 0; k < group_size; ++k)
          if (k < p.count) sum[k] += g[k] * share;
      }
    store_group(dx + pixel_offset(p.image, s.h, s.w, p.row, p.column, s.c) + p.channel, p.count, sum);
  }
};

// codes: [images, pixels, c], sums: [images, c].
template <class Code>
struct SumPixels {
  std::int64_t pixels;
  RowGroups groups;
  const Code* codes;
  std::int32_t* sums;

  FQ_HD void operator()(std::int64_t item) const {
    const auto p = groups.part(item);
    const Code* x = codes + p.row * pixels * groups.width + p.column;
    // int32 is exact for up to 2^23 pixels of 8-bit codes.
    std::int32_t sum[group_size] = {};
    for (std::int64_t i = 0; i < pixels; ++i) {
      Code v[group_size];
      load_group(x + i * groups.width, p.count, v);
      for (int k = 0; k < group_size; ++k)
        if (k < p.count) sum[k] += v[k];
    }
    store_group(sums + p.row * groups.width + p.column, p.count, sum);
  }
};

template <class Code>
void sum_typed(const Tensor& codes, Tensor& sums) {
  const std::int64_t images = codes.dim(0), pixels = codes.dim(2) * codes.dim(3);
  const RowGroups groups = channel_groups(images, codes.dim(1));
  launch_each(
      codes.device(), images * groups.groups,
      SumPixels<Code>{pixels, groups, device_data<Code>(codes), mutable_device_data<std::int32_t>(sums)});
}

}  // namespace

void avg_pool(const Tensor& x, const PoolSizes& s, bool include_padding, const Tensor& scale, Tensor& y) {
  const RowGroups groups = channel_groups(s.n * s.oh * s.ow, s.c);
  const auto* factor = scale.defined() ? device_data<float>(scale) : nullptr;
  const auto run = [&]<class From, class T>(From, T) {
    launch_each(x.device(), s.n * s.oh * s.ow * groups.groups,
                Average<From, T>{s, include_padding, groups, device_data<From>(x), factor,
                                 mutable_device_data<T>(y)});
  };
  switch (x.dtype()) {
    // Codes are averaged as fl(code * scale), as the exported operator does.
    case DType::i8:
      return run(std::int8_t{}, float{});
    case DType::u8:
      return run(std::uint8_t{}, float{});
    default:
      return visit_float(x.dtype(), [&]<class T>(T) { run(T{}, T{}); });
  }
}

void avg_pool_backward(const Tensor& dy, const PoolSizes& s, bool include_padding, Tensor& dx) {
  const RowGroups groups(s.c);
  visit_float(dy.dtype(), [&]<class T>(T) {
    launch_each(
        dy.device(), s.n * s.h * s.w * groups.groups,
        AverageBackward<T>{s, include_padding, groups, device_data<T>(dy), mutable_device_data<T>(dx)});
  });
}

void sum_pixels(const Tensor& codes, Tensor& sums) {
  switch (codes.dtype()) {
    case DType::i8:
      return sum_typed<std::int8_t>(codes, sums);
    case DType::u8:
      return sum_typed<std::uint8_t>(codes, sums);
    case DType::i16:
      return sum_typed<std::int16_t>(codes, sums);
    default:
      return sum_typed<std::int32_t>(codes, sums);
  }
}

}  // namespace fq::cuda
