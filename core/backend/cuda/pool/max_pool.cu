#include <type_traits>

#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/backend/cuda/pool/pool.cuh"

namespace fq::cuda {
namespace {

using fq::detail::Covering;
using fq::detail::Window;

/// Returns whether v replaces the best value. NaN always does.
template <class T>
FQ_HD bool wins(T v, T best, bool falls) {
  if constexpr (std::is_floating_point_v<T>) return v > best || v != v;
  // Sums of a channel with a negative factor: the smallest sum has the largest value.
  return falls ? v < best : v > best;
}

// x: [n, h, w, c], y and argmax: [n, oh, ow, c]. One thread per output pixel and eight channels.
template <class T, class Place>
struct MaxPool {
  PoolSizes s;
  RowGroups groups;
  const T* x;
  const float* factor;  // null: no channel has a negative factor
  T* y;
  Place* argmax;  // may be null

  FQ_HD void operator()(std::int64_t item) const {
    const PixelPart p(groups, s.oh, s.ow, item);
    const Window window(s, p.row, p.column);
    T best[group_size] = {};
    Place place[group_size] = {};
    bool falls[group_size];
    for (int k = 0; k < group_size; ++k)
      falls[k] = factor != nullptr && k < p.count && factor[p.channel + k] < 0.0f;
    // The first pixel is the first maximum, even if it is NaN or the smallest value of T.
    bool first = true;
    for (std::int64_t h = window.top; h < window.bottom; ++h)
      for (std::int64_t w = window.left; w < window.right; ++w) {
        T v[group_size];
        load_group(x + pixel_offset(p.image, s.h, s.w, h, w, s.c) + p.channel, p.count, v);
        const auto here = static_cast<Place>(window.place(s, h, w));
        for (int k = 0; k < group_size; ++k) {
          if (k >= p.count || !(first || wins(v[k], best[k], falls[k]))) continue;
          best[k] = v[k];
          place[k] = here;
        }
        first = false;
      }
    const std::int64_t at = pixel_offset(p.image, s.oh, s.ow, p.row, p.column, s.c) + p.channel;
    store_group(y + at, p.count, best);
    if (argmax != nullptr) store_group(argmax + at, p.count, place);
  }
};

// A gather: one thread per pixel of dx adds the windows that cover it, in a fixed order and without atomics.
template <class T, class Place>
struct MaxPoolBackward {
  PoolSizes s;
  RowGroups groups;
  const T* dy;
  const Place* argmax;
  T* dx;

  FQ_HD void operator()(std::int64_t item) const {
    const PixelPart p(groups, s.h, s.w, item);
    Covering rows{s.kh, s.sh, s.oh}, columns{s.kw, s.sw, s.ow};
    // The windows that cover row p.row, counted from the start of the padding.
    rows.seek(p.row + s.ph);
    columns.seek(p.column + s.pw);
    T sum[group_size] = {};
    for (std::int64_t i = rows.begin; i < rows.end; ++i)
      for (std::int64_t j = columns.begin; j < columns.end; ++j) {
        const std::int64_t at = pixel_offset(p.image, s.oh, s.ow, i, j, s.c) + p.channel;
        // dy of window (i, j) passes to this pixel if it holds the maximum of the window.
        const auto here = static_cast<Place>(Window(s, i, j).place(s, p.row, p.column));
        T g[group_size];
        Place place[group_size];
        load_group(dy + at, p.count, g);
        load_group(argmax + at, p.count, place);
        for (int k = 0; k < group_size; ++k)
          if (k < p.count && place[k] == here) sum[k] += g[k];
      }
    store_group(dx + pixel_offset(p.image, s.h, s.w, p.row, p.column, s.c) + p.channel, p.count, sum);
  }
};

// Positions have one byte up to 255 positions in a window, else four.
template <class F>
void visit_places(DType dtype, F&& f) {
  if (dtype == DType::u8)
    f(std::uint8_t{});
  else
    f(std::int32_t{});
}

template <class F>
void visit_pooled(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      return f(float{});
    case DType::f64:
      return f(double{});
    case DType::i8:
      return f(std::int8_t{});
    case DType::u8:
      return f(std::uint8_t{});
    case DType::i16:
      return f(std::int16_t{});
    default:
      return f(std::int32_t{});
  }
}

struct Reorder {
  const std::uint8_t* x;
  std::uint8_t* y;
  FQ_HD void operator()(std::int64_t first, int count) const {
    std::uint8_t v[group_size];
    load_group(x + first, count, v);
    for (int k = 0; k < group_size; ++k)
      if (k < count) v[k] = fq::detail::reordered_e4m3(v[k]);
    store_group(y + first, count, v);
  }
};

}  // namespace

void max_pool(const Tensor& x, const PoolSizes& s, Tensor& y, Tensor* argmax, const Tensor& factor) {
  const RowGroups groups(s.c);
  const auto* falling = factor.defined() ? device_data<float>(factor) : nullptr;
  visit_pooled(x.dtype(), [&]<class T>(T) {
    visit_places(argmax != nullptr ? argmax->dtype() : DType::u8, [&]<class Place>(Place) {
      launch_each(x.device(), s.n * s.oh * s.ow * groups.groups,
                  MaxPool<T, Place>{s, groups, device_data<T>(x), falling, mutable_device_data<T>(y),
                                    argmax != nullptr ? mutable_device_data<Place>(*argmax) : nullptr});
    });
  });
}

void max_pool_backward(const Tensor& dy, const Tensor& argmax, const PoolSizes& s, Tensor& dx) {
  const RowGroups groups(s.c);
  visit_float(dy.dtype(), [&]<class T>(T) {
    visit_places(argmax.dtype(), [&]<class Place>(Place) {
      launch_each(dy.device(), s.n * s.h * s.w * groups.groups,
                  MaxPoolBackward<T, Place>{s, groups, device_data<T>(dy), device_data<Place>(argmax),
                                            mutable_device_data<T>(dx)});
    });
  });
}

void reorder_e4m3(const Tensor& bytes, Tensor& out) {
  launch_groups(out.device(), out.numel(),
                Reorder{device_data<std::uint8_t>(bytes), mutable_device_data<std::uint8_t>(out)});
}

}  // namespace fq::cuda
