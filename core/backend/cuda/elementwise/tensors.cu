#include "fakequant/core/backend/cuda/elementwise/tensors.h"
#include "fakequant/core/backend/cuda/elementwise/transpose.h"
#include "fakequant/core/backend/cuda/loops/bits.cuh"
#include "fakequant/core/backend/cuda/loops/groups.cuh"
#include "fakequant/core/numerics/detail/cast.h"

namespace fq::cuda {
namespace {

using fq::detail::as_double;
using fq::detail::from_double;

template <class T>
FQ_HD void load_doubles(const void* p, std::int64_t first, int count, double (&v)[group_size]) {
  T own[group_size];
  load_group(static_cast<const T*>(p) + first, count, own);
  for (int j = 0; j < group_size; ++j) v[j] = as_double(own[j]);
}

template <class T>
FQ_HD void store_doubles(void* p, std::int64_t first, int count, const double (&v)[group_size]) {
  T own[group_size];
  for (int j = 0; j < group_size; ++j) own[j] = from_double<T>(v[j]);
  store_group(static_cast<T*>(p) + first, count, own);
}

/// Every type that converts fits into a double, but for large i64.
FQ_HD void load_any(const void* p, DType dtype, std::int64_t first, int count, double (&v)[group_size]) {
  switch (dtype) {
    case DType::f32:
      return load_doubles<float>(p, first, count, v);
    case DType::f64:
      return load_doubles<double>(p, first, count, v);
    case DType::f16:
      return load_doubles<float16>(p, first, count, v);
    case DType::bf16:
      return load_doubles<bfloat16>(p, first, count, v);
    case DType::i8:
      return load_doubles<std::int8_t>(p, first, count, v);
    case DType::u8:
      return load_doubles<std::uint8_t>(p, first, count, v);
    case DType::i16:
      return load_doubles<std::int16_t>(p, first, count, v);
    case DType::u16:
      return load_doubles<std::uint16_t>(p, first, count, v);
    case DType::i32:
      return load_doubles<std::int32_t>(p, first, count, v);
    default:
      return load_doubles<std::int64_t>(p, first, count, v);
  }
}

FQ_HD void store_any(void* p, DType dtype, std::int64_t first, int count, const double (&v)[group_size]) {
  switch (dtype) {
    case DType::f32:
      return store_doubles<float>(p, first, count, v);
    case DType::f64:
      return store_doubles<double>(p, first, count, v);
    case DType::f16:
      return store_doubles<float16>(p, first, count, v);
    case DType::bf16:
      return store_doubles<bfloat16>(p, first, count, v);
    case DType::i8:
      return store_doubles<std::int8_t>(p, first, count, v);
    case DType::u8:
      return store_doubles<std::uint8_t>(p, first, count, v);
    case DType::i16:
      return store_doubles<std::int16_t>(p, first, count, v);
    case DType::u16:
      return store_doubles<std::uint16_t>(p, first, count, v);
    case DType::i32:
      return store_doubles<std::int32_t>(p, first, count, v);
    default:
      return store_doubles<std::int64_t>(p, first, count, v);
  }
}

struct Fill {
  void* out;
  DType dtype;
  double value;
  FQ_HD void operator()(std::int64_t first, int count) const {
    double v[group_size];
    for (double& each : v) each = value;
    store_any(out, dtype, first, count, v);
  }
};

struct Convert {
  const void* in;
  void* out;
  DType from, to;
  FQ_HD void operator()(std::int64_t first, int count) const {
    double v[group_size];
    load_any(in, from, first, count, v);
    store_any(out, to, first, count, v);
  }
};

/// One byte of the bits of images, [rows][columns] to [columns][rows].
struct TransposeBits {
  const std::uint8_t* x;
  std::uint8_t* y;
  std::int64_t rows, columns, bits;
  FQ_HD void operator()(std::int64_t byte) const {
    const std::int64_t size = rows * columns;
    unsigned out = 0;
    for (int j = 0; j < 8; ++j) {
      const std::int64_t i = byte * 8 + j, image = i / size, at = i % size;
      if (i < bits)
        out |= static_cast<unsigned>(get_bit(x, image * size + at % rows * columns + at / rows)) << j;
    }
    y[byte] = static_cast<std::uint8_t>(out);
  }
};

}  // namespace

void fill(Tensor& out, double value) {
  for_groups(out.device(), out.numel(), Fill{out.mutable_raw(), out.dtype(), value});
}

void convert(const Tensor& in, Tensor& out) {
  for_groups(in.device(), in.numel(), Convert{in.raw(), out.mutable_raw(), in.dtype(), out.dtype()});
}

void relayout(const Tensor& in, Tensor& out) {
  if (in.numel() == 0) return;
  const auto& s = in.shape();
  const bool to_last = out.layout() == Layout::channels_last;
  const std::int64_t pixels = s[2] * s[3], rows = to_last ? s[1] : pixels, columns = to_last ? pixels : s[1];
  if (bit_width(in.dtype()) > 1)
    return transpose(in.raw(), out.mutable_raw(), bit_width(in.dtype()), s[0], rows, columns, in.device());
  for_items(in.device(), out.nbytes(),
            TransposeBits{static_cast<const std::uint8_t*>(in.raw()),
                          static_cast<std::uint8_t*>(out.mutable_raw()), rows, columns, in.numel()});
}

}  // namespace fq::cuda
