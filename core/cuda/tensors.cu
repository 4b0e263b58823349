#include "fakequant/core/cast.h"
#include "fakequant/core/cuda/bits.cuh"
#include "fakequant/core/cuda/groups.cuh"
#include "fakequant/core/cuda/tensors.h"

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

/// Images of rows * columns words to columns * rows, by tiles: both sides of memory see whole lines.
template <class Word>
struct Transpose {
  static constexpr int phases = 2, side = 32, lines = block_threads / side;
  struct Shared {
    Word tile[side][side + 1];
  };
  const Word* x;
  Word* y;
  std::int64_t rows, columns, tiles_down, tiles_across;

  template <int Phase>
  FQ_HD void phase(Thread t, Shared& shared) const {
    const std::int64_t image = t.block / (tiles_down * tiles_across),
                       tile = t.block % (tiles_down * tiles_across);
    const std::int64_t r0 = tile / tiles_across * side, c0 = tile % tiles_across * side;
    const Word* from = x + image * rows * columns;
    Word* to = y + image * rows * columns;
    const int i = t.thread % side;
    for (int j = t.thread / side; j < side; j += lines) {
      if (Phase == 0 && r0 + j < rows && c0 + i < columns)
        shared.tile[j][i] = from[(r0 + j) * columns + c0 + i];
      if (Phase == 1 && c0 + j < columns && r0 + i < rows) to[(c0 + j) * rows + r0 + i] = shared.tile[i][j];
    }
  }
};

template <class Word>
void transpose(const Tensor& in, Tensor& out, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t side = Transpose<Word>::side;
  const std::int64_t down = (rows + side - 1) / side, across = (columns + side - 1) / side;
  for_blocks(in.device(), in.shape()[0] * down * across,
             Transpose<Word>{static_cast<const Word*>(in.raw()), static_cast<Word*>(out.mutable_raw()), rows,
                             columns, down, across});
}

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
  switch (bit_width(in.dtype())) {
    case 1:
      return for_items(
          in.device(), out.nbytes(),
          TransposeBits{static_cast<const std::uint8_t*>(in.raw()),
                        static_cast<std::uint8_t*>(out.mutable_raw()), rows, columns, in.numel()});
    case 8:
      return transpose<std::uint8_t>(in, out, rows, columns);
    case 16:
      return transpose<std::uint16_t>(in, out, rows, columns);
    case 32:
      return transpose<std::uint32_t>(in, out, rows, columns);
    default:
      return transpose<std::uint64_t>(in, out, rows, columns);
  }
}

}  // namespace fq::cuda
