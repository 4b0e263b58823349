#pragma once

/// Tiles of f16 halves in shared memory, and their products by tensor cores (mma.m16n8k16, f32 sums).
///
/// An f32 number is the sum of two halves, high and low, after a multiplication by a power of two: about 22
/// bits. The product of two numbers is then high * high + high * low + low * high.
///
/// A warp computes 16 rows of a product. A thread holds rows `lane / 4` and `lane / 4 + 8`, and of every
/// eight columns `lane % 4 * 2` and the next one: the fragment of the instruction. On the host, where threads
/// run one by one, a thread computes its fragment by plain sums over the tiles.

#include <cstring>

#include "fakequant/core/backend/cuda/loops/groups.cuh"
#include "fakequant/core/backend/cuda/loops/mma.cuh"

namespace fq::cuda {

inline constexpr int warp_threads = 32, warp_rows = 16;

/// The part of a fragment: four sums of eight columns.
using Quad = float[4];

template <int quads>
FQ_HD void clear(Quad (&sums)[quads]) {
  for (Quad& quad : sums)
    for (float& sum : quad) sum = 0;
}

/// Returns the row of element i of a quad, in the rows of the warp.
FQ_HD int quad_row(int lane, int i) { return lane / 4 + (i >= 2 ? 8 : 0); }
/// Returns the column of element i of quad n.
FQ_HD int quad_column(int lane, int n, int i) { return n * 8 + lane % 4 * 2 + (i & 1); }

/// Returns the number of instructions over `columns` columns.
FQ_HD int mma_steps(std::int64_t columns) { return static_cast<int>((columns + 15) / 16); }

namespace loops {

/// Returns the halves nearest to a and b, a in the low bits.
FQ_HD std::uint32_t pack_halves(float a, float b) {
  std::uint32_t pair;
  FQ_BY_TARGET(asm("cvt.rn.f16x2.f32 %0, %1, %2;"
                   : "=r"(pair)
                   : "f"(b), "f"(a)),
               pair = float16(a).bits | static_cast<std::uint32_t>(float16(b).bits) << 16);
  return pair;
}
FQ_HD float half_value(std::uint32_t bits) {
  float16 half;
  half.bits = static_cast<std::uint16_t>(bits);
  return static_cast<float>(half);
}

/// Two numbers as halves.
struct HalfPair {
  std::uint32_t high, low;

  FQ_HD HalfPair(float a, float b)
      : high(pack_halves(a, b)), low(pack_halves(a - half_value(high), b - half_value(high >> 16))) {}
};

/// Returns the power of two that scales a number with the bits of `largest` (finite, not negative) to [2^14,
/// 2^15): the largest halves. At most 2^126, so that the inverse is a normal number.
FQ_HD float half_scale(std::uint32_t largest) {
  const int wanted = 268 - static_cast<int>(largest >> 23), field = wanted < 253 ? wanted : 253;
  return std::bit_cast<float>(static_cast<std::uint32_t>(field) << 23);
}
/// Returns 1 / scale, exactly. `scale` is a result of `half_scale`.
FQ_HD float inverse_scale(float scale) {
  return std::bit_cast<float>((254u << 23) - std::bit_cast<std::uint32_t>(scale));
}
/// Returns the bits of |x|, which have the order of the numbers.
FQ_HD std::uint32_t magnitude_bits(float x) { return std::bit_cast<std::uint32_t>(x) & 0x7fffffffu; }
/// Returns the same, or 0 if x is not finite: it must not scale other numbers to 0.
FQ_HD std::uint32_t finite_magnitude(float x) {
  const std::uint32_t bits = magnitude_bits(x);
  return bits < 0x7f800000u ? bits : 0;
}

#if defined(__CUDACC__)
__device__ __forceinline__ void load_transposed_matrices(const std::uint16_t* row, std::uint32_t (&x)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(shared_address(row)));
}
/// sums += a [16, 16] b [16, 8]
__device__ __forceinline__ void multiply_fragments(const std::uint32_t (&a)[4], std::uint32_t b0,
                                                   std::uint32_t b1, Quad& sums) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif

}  // namespace loops

/// Part of a matrix in memory: `rows` rows of `width` floats. Elements outside read as 0.
struct FloatRows {
  const float* first;
  std::int64_t step;  ///< distance between rows
  int rows, width;
  bool aligned;  ///< whether groups of a row lie at multiples of 16 bytes

  FQ_HD FloatRows(const float* data, std::int64_t row_step, std::int64_t row_count, std::int64_t columns)
      : first(data),
        step(row_step),
        rows(static_cast<int>(row_count)),
        width(static_cast<int>(columns)),
        aligned(loops::packed(data) && row_step % 4 == 0) {}

  /// Sets v to the elements from `column`, a multiple of the group.
  FQ_HD void load(int row, int column, float (&v)[group_size]) const {
    const float* from = first + row * step + column;
    if (aligned && row < rows && column + group_size <= width) {
      using Pack = loops::Pack<float>;
      for (int part = 0; part < group_size / Pack::count; ++part) {
        const Pack pack = loops::load_pack(reinterpret_cast<const Pack*>(from) + part);
        for (int j = 0; j < Pack::count; ++j) v[part * Pack::count + j] = pack.v[j];
      }
      return;
    }
    for (int j = 0; j < group_size; ++j) v[j] = row < rows && column + j < width ? from[j] : 0.0f;
  }
  [[nodiscard]] FQ_HD float at(int row, int column) const {
    return row < rows && column < width ? first[row * step + column] : 0.0f;
  }
};

/// Floats as halves: high and, if `exact`, low. Groups of rows share a scale.
template <int row_count, int column_count, bool exact>
struct HalfTile {
  static_assert(column_count % 64 == 0, "the order of columns repeats after 64");
  static constexpr int rows = row_count, columns = column_count, planes = exact ? 2 : 1;
  /// A warp loads a group: 16 elements per lane.
  static constexpr int group_rows = 512 / columns, groups = rows / group_rows;

  alignas(16) std::uint16_t v[planes][rows * columns];
  float factor[groups];  ///< element = (high + low) * factor

  /// Returns the index of an element. Each row permutes its groups of eight columns. The same group of eight
  /// neighbouring rows is then in different banks of shared memory, as ldmatrix needs.
  [[nodiscard]] FQ_HD static int index(int row, int column) {
    return row * columns + ((((column >> 3) ^ (row & 7)) << 3) | (column & 7));
  }
  /// Returns the index `columns_on` columns further, a multiple of 16, from columns 0 to 15 after a multiple
  /// of it. One instruction, in contrast to `index`.
  [[nodiscard]] FQ_HD static int moved(int from, int columns_on) { return from ^ columns_on; }
  [[nodiscard]] FQ_HD float row_factor(int row) const { return factor[row / group_rows]; }
  [[nodiscard]] FQ_HD float plane_value(int plane, int row, int column) const {
    return loops::half_value(v[plane][index(row, column)]);
  }

  /// Loads one group of rows, by all threads of a warp.
  FQ_HD void load(const FloatRows& from, int group, int lane) {
    constexpr int parts = 2, lanes = columns / group_size;  // lanes per row
    float x[parts][group_size];
    std::uint32_t own = 0;
    const auto row_of = [=](int part) { return group * group_rows + (part * warp_threads + lane) / lanes; };
    const int column = lane % lanes * group_size;
    for (int part = 0; part < parts; ++part) {
      from.load(row_of(part), column, x[part]);
      for (const float element : x[part]) own = larger(own, loops::magnitude_bits(element));
    }
    std::uint32_t largest = FQ_BY_TARGET(__reduce_max_sync(0xffffffffu, own), largest_of_group(from, group));
#if defined(__CUDA_ARCH__)
    if (largest >= 0x7f800000u) {
      own = 0;
      for (const auto& part : x)
        for (const float element : part) own = larger(own, loops::finite_magnitude(element));
      largest = __reduce_max_sync(0xffffffffu, own);
    }
#endif
    const float scale = loops::half_scale(largest);
    if (lane == 0) factor[group] = loops::inverse_scale(scale);
    for (int part = 0; part < parts; ++part) store(row_of(part), column, scale, x[part]);
  }

 private:
  FQ_HD static std::uint32_t larger(std::uint32_t a, std::uint32_t b) { return a > b ? a : b; }
  static std::uint32_t largest_of_group(const FloatRows& from, int group) {
    std::uint32_t largest = 0;
    for (int row = group * group_rows; row < (group + 1) * group_rows; ++row)
      for (int column = 0; column < columns; ++column)
        largest = larger(largest, loops::finite_magnitude(from.at(row, column)));
    return largest;
  }
  FQ_HD void store(int row, int column, float scale, const float (&x)[group_size]) {
    std::uint32_t words[planes][group_size / 2];
    for (int j = 0; j < group_size / 2; ++j) {
      const loops::HalfPair pair(x[2 * j] * scale, x[2 * j + 1] * scale);
      words[0][j] = pair.high;
      if constexpr (exact) words[1][j] = pair.low;
    }
    for (int plane = 0; plane < planes; ++plane) {
      std::uint16_t* to = &v[plane][index(row, column)];
      const std::uint32_t(&own)[group_size / 2] = words[plane];
      FQ_BY_TARGET(*reinterpret_cast<uint4*>(to) = make_uint4(own[0], own[1], own[2], own[3]),
                   std::memcpy(to, own, sizeof own));
    }
  }
};

/// sums += a b^T for the 16 rows of `a` from `row`, over the first 16 * steps columns. Sums have no factors.
template <class A, class B, int quads>
FQ_HD void add_row_products(const A& a, int row, const B& b, int steps, int lane, Quad (&sums)[quads]) {
  static_assert(quads * 8 == B::rows && quads % 2 == 0 && A::planes == B::planes);
#if defined(__CUDA_ARCH__)
  const int a_index = A::index(row + lane % 16, lane / 16 * 8),
            b_index = B::index(lane % 8 + lane / 16 * 8, lane / 8 % 2 * 8);
  for (int step = 0; step < steps; ++step) {
    std::uint32_t left[A::planes][4];
    for (int plane = 0; plane < A::planes; ++plane)
      loops::load_matrices(&a.v[plane][A::moved(a_index, step * 16)], left[plane]);
    FQ_UNROLL
    for (int n = 0; n < quads; n += 2) {
      std::uint32_t right[B::planes][4];
      for (int plane = 0; plane < B::planes; ++plane)
        loops::load_matrices(&b.v[plane][B::moved(b_index, step * 16) + n * 8 * B::columns], right[plane]);
      for (int i = 0; i < 2; ++i) {
        loops::multiply_fragments(left[0], right[0][2 * i], right[0][2 * i + 1], sums[n + i]);
        if constexpr (A::planes == 2) {
          loops::multiply_fragments(left[0], right[1][2 * i], right[1][2 * i + 1], sums[n + i]);
          loops::multiply_fragments(left[1], right[0][2 * i], right[0][2 * i + 1], sums[n + i]);
        }
      }
    }
  }
#else
  for (int n = 0; n < quads; ++n)
    for (int i = 0; i < 4; ++i) {
      const int left = row + quad_row(lane, i), right = quad_column(lane, n, i);
      for (int c = 0; c < steps * 16; ++c) {
        const float x = a.plane_value(0, left, c), y = b.plane_value(0, right, c);
        sums[n][i] += x * y;
        if constexpr (A::planes == 2)
          sums[n][i] += x * b.plane_value(1, right, c) + a.plane_value(1, left, c) * y;
      }
    }
#endif
}

/// A matrix of fragments as the left factor of a product: `rows` rows of all warps of a block. On a GPU the
/// fragments stay in registers. On the host the halves are stored in shared memory.
template <int rows, int columns, bool exact>
struct WarpFactor {
  static constexpr int planes = exact ? 2 : 1;
#if !defined(__CUDACC__)
  std::uint16_t v[planes][rows][columns];
#endif

  /// Stores fragments for `add_products` of other threads of the warp, in a later phase. `row` is the warp's
  /// first row.
  FQ_HD void store([[maybe_unused]] const Quad (&x)[columns / 8], [[maybe_unused]] int row,
                   [[maybe_unused]] int lane) {
#if !defined(__CUDACC__)
    for (int n = 0; n < columns / 8; ++n)
      for (int i = 0; i < 4; i += 2) {
        const loops::HalfPair pair(x[n][i], x[n][i + 1]);
        const std::uint32_t words[] = {pair.high, pair.low};
        for (int plane = 0; plane < planes; ++plane)
          std::memcpy(&v[plane][row + quad_row(lane, i)][quad_column(lane, n, i)], &words[plane], 4);
      }
#endif
  }

  /// sums += x b, for quads of columns of b from `first`. `x` are the stored fragments. Sums have no factors.
  template <class B, int quads>
  FQ_HD void add_products([[maybe_unused]] const Quad (&x)[columns / 8], [[maybe_unused]] int row, const B& b,
                          int first, int lane, Quad (&sums)[quads]) const {
    static_assert(columns == B::rows && quads % 2 == 0 && planes == B::planes);
#if defined(__CUDA_ARCH__)
    const int b_index = B::index(lane % 16, first + lane / 16 * 8);
    FQ_UNROLL
    for (int step = 0; step < columns / 16; ++step) {
      std::uint32_t left[2][4];
      for (int i = 0; i < 4; ++i) {
        const loops::HalfPair pair(x[2 * step + i / 2][i % 2 * 2], x[2 * step + i / 2][i % 2 * 2 + 1]);
        left[0][i] = pair.high;
        left[1][i] = pair.low;
      }
      FQ_UNROLL
      for (int n = 0; n < quads; n += 2) {
        std::uint32_t right[B::planes][4];
        for (int plane = 0; plane < B::planes; ++plane)
          loops::load_transposed_matrices(&b.v[plane][B::moved(b_index, n * 8) + step * 16 * B::columns],
                                          right[plane]);
        for (int i = 0; i < 2; ++i) {
          loops::multiply_fragments(left[0], right[0][2 * i], right[0][2 * i + 1], sums[n + i]);
          if constexpr (exact) {
            loops::multiply_fragments(left[0], right[1][2 * i], right[1][2 * i + 1], sums[n + i]);
            loops::multiply_fragments(left[1], right[0][2 * i], right[0][2 * i + 1], sums[n + i]);
          }
        }
      }
    }
#elif !defined(__CUDACC__)
    for (int n = 0; n < quads; ++n)
      for (int i = 0; i < 4; ++i) {
        const int left = row + quad_row(lane, i), column = first + quad_column(lane, n, i);
        for (int k = 0; k < columns; ++k) {
          const float p = loops::half_value(v[0][left][k]), y = b.plane_value(0, k, column);
          sums[n][i] += p * y;
          if constexpr (exact)
            sums[n][i] += p * b.plane_value(1, k, column) + loops::half_value(v[1][left][k]) * y;
        }
      }
#endif
  }
};

}  // namespace fq::cuda
