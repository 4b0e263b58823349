#include "fakequant/core/backend/cpu/norm/batch_norm_kernels.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fakequant/core/backend/cpu/norm/batch_norm_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "fakequant/core/backend/cpu/vector/lanes-inl.h"
//
#include "fakequant/core/backend/cpu/vector/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {

template <class X>
FQ_HD FloatVector load_floats(const X* p) {
  return load_lanes<float>(p);
}
FQ_HD void store_floats(FloatVector v, float* p) { hn::StoreU(v, FloatTag(), p); }

/// Number of adjacent vectors whose sums stay in registers. AVX-512 has 32 registers: a whole run of up to
/// 128 channels fits, and memory is read in order.
constexpr std::int64_t kAbreast = HWY_MAX_BYTES >= 64 ? 8 : 4;

/// Computes sums[i] += a, products[i] += b of add(position, i) for `runs` whole runs.
template <std::int64_t abreast, class Terms>
void add_columns(std::int64_t runs, std::int64_t width, std::int64_t column, float* sums, float* products,
                 const Terms& terms) {
  const FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  FloatVector a[abreast], b[abreast];
  for (std::int64_t k = 0; k < abreast; ++k) {
    a[k] = load_floats(sums + column + k * lanes);
    b[k] = load_floats(products + column + k * lanes);
  }
  // The accumulators of each column stay in registers over all runs. Column i has one chain of additions on
  // every target, which gives the same bits.
  for (std::int64_t r = 0; r < runs; ++r)
    for (std::int64_t k = 0; k < abreast; ++k) {
      const std::int64_t i = column + k * lanes;
      FloatVector term, product;
      terms(r * width + i, i, term, product);
      a[k] = hn::Add(a[k], term);
      b[k] = hn::Add(b[k], product);
    }
  for (std::int64_t k = 0; k < abreast; ++k) {
    store_floats(a[k], sums + column + k * lanes);
    store_floats(b[k], products + column + k * lanes);
  }
}

/// Processes all columns in whole vectors below `end`. Returns the end of the last vector.
template <class Terms>
std::int64_t add_runs(std::int64_t runs, std::int64_t width, std::int64_t end, float* sums, float* products,
                      const Terms& terms) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(FloatTag()));
  std::int64_t column = 0;
  for (; column + kAbreast * lanes <= end; column += kAbreast * lanes)
    add_columns<kAbreast>(runs, width, column, sums, products, terms);
  for (; column + lanes <= end; column += lanes) add_columns<1>(runs, width, column, sums, products, terms);
  return column;
}

void MomentsF32(const float* x, std::int64_t count, std::int64_t width, const float* first, float* sums,
                float* squares) {
  const auto make_terms = [first](const float* from) {
    return [from, first](std::int64_t at, std::int64_t i, FloatVector& a, FloatVector& b) HWY_ATTR {
      a = hn::Sub(load_floats(from + at), load_floats(first + i));
      b = hn::Mul(a, a);
    };
  };
  const std::int64_t runs = count / width, rest = count % width;
  add_runs(runs, width, width, sums, squares, make_terms(x));
  const float* last = x + runs * width;
  for (std::int64_t i = add_runs(1, width, rest, sums, squares, make_terms(last)); i < rest; ++i) {
    const float shifted = last[i] - first[i];
    // The last columns of an incomplete run, with the same operations.
    sums[i] += shifted;
    squares[i] += shifted * shifted;
  }
}

#if HWY_TARGET == HWY_SCALAR
// Vectors of one lane cannot multiply pairs of integers.
bool AddIntegersI32(const std::int32_t*, std::int64_t, std::int64_t, detail::IntegerSums*) { return false; }
#else
using Integers = Lanes<std::int32_t>;
using WideIntegers = Lanes<std::uint64_t>;

/// Adds `abreast` vectors of columns over `runs` whole runs. Requires sums of a column that fit int32 and
/// squares that fit 64 bits. Joins the bits of all squares.
template <std::int64_t abreast>
void add_integer_columns(const std::int32_t* x, std::int64_t runs, std::int64_t width,
                         detail::IntegerSums* sums, WideIntegers& bits) {
  const LaneTag<std::int32_t> d;
  const LaneTag<std::uint64_t> wide;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  Integers sum[abreast];
  WideIntegers even[abreast], odd[abreast];
  for (std::int64_t k = 0; k < abreast; ++k) {
    sum[k] = hn::Zero(d);
    even[k] = odd[k] = hn::Zero(wide);
  }
  for (std::int64_t r = 0; r < runs; ++r)
    for (std::int64_t k = 0; k < abreast; ++k) {
      const auto v = hn::LoadU(d, x + r * width + k * lanes);
      const auto other = hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, v)));
      const auto a = hn::BitCast(wide, hn::MulEven(v, v)), b = hn::BitCast(wide, hn::MulEven(other, other));
      sum[k] = hn::Add(sum[k], v);
      even[k] = hn::Add(even[k], a);
      odd[k] = hn::Add(odd[k], b);
      bits = hn::Or3(bits, a, b);
    }
  for (std::int64_t k = 0; k < abreast; ++k)
    for (std::int64_t i = 0; i < lanes; ++i) {
      const auto pair = static_cast<std::size_t>(i / 2);
      sums[k * lanes + i].join({hn::ExtractLane(sum[k], static_cast<std::size_t>(i)),
                                {0, hn::ExtractLane(i % 2 == 0 ? even[k] : odd[k], pair)}});
    }
}

/// Adds whole runs. Returns false, with wrong sums, if a number is too large for the sums of vectors.
bool AddIntegersI32(const std::int32_t* x, std::int64_t runs, std::int64_t width, detail::IntegerSums* sums) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(LaneTag<std::int32_t>()));
  const LaneTag<std::uint64_t> wide;
  WideIntegers bits = hn::Zero(wide);
  std::int64_t column = 0;
  // A run has a multiple of 16 columns: whole vectors.
  for (; column + kAbreast * lanes <= width; column += kAbreast * lanes)
    add_integer_columns<kAbreast>(x + column, runs, width, sums + column, bits);
  for (; column < width; column += lanes)
    add_integer_columns<1>(x + column, runs, width, sums + column, bits);
  // Squares below 2^48: 128 numbers below 2^24.
  return runs <= 128 && hn::AllTrue(wide, hn::Eq(hn::ShiftRight<48>(bits), hn::Zero(wide)));
}
#endif

template <class X>
void add_gradients(const float* dy, const X* x, std::int64_t count, std::int64_t width, const float* mean,
                   float* sums, float* products) {
  const auto make_terms = [mean](const float* g, const X* from) {
    return [g, from, mean](std::int64_t at, std::int64_t i, FloatVector& a, FloatVector& b) HWY_ATTR {
      a = load_floats(g + at);
      b = hn::Mul(a, hn::Sub(load_floats(from + at), load_floats(mean + i)));
    };
  };
  const std::int64_t runs = count / width, rest = count % width, end = runs * width;
  add_runs(runs, width, width, sums, products, make_terms(dy, x));
  for (std::int64_t i = add_runs(1, width, rest, sums, products, make_terms(dy + end, x + end)); i < rest;
       ++i) {
    sums[i] += dy[end + i];
    products[i] += dy[end + i] * (static_cast<float>(x[end + i]) - mean[i]);
  }
}

/// Calls step(at, i, io) for every vector; i is the position in the run.
template <class Step>
void visit_runs(std::int64_t count, std::int64_t width, const Step& step) {
  for (std::int64_t run = 0; run < count; run += width)
    visit_vectors<float>(0, std::min(width, count - run),
                         [&](std::int64_t i, auto io) HWY_ATTR { step(run + i, i, io); });
}

void Normalize(const float* x, std::int64_t count, std::int64_t width, const float* m, const float* f,
               const float* t, float* y) {
  visit_runs(count, width, [=](std::int64_t at, std::int64_t i, auto io) HWY_ATTR {
    io.store(normalized(io.load(x + at), io.load(m + i), io.load(f + i), io.load(t + i)), y + at);
  });
}

template <class X>
void normalize_gradient(const float* dy, const X* x, std::int64_t count, std::int64_t width, const float* m,
                        const float* f, const float* p, const float* t, float* dx) {
  visit_runs(count, width, [=](std::int64_t at, std::int64_t i, auto io) HWY_ATTR {
    // dx = dy * f + (x - m) * p + t: the two sums over the batch are already in p and t.
    io.store(normalized_gradient(io.load(dy + at), io.load(x + at), io.load(m + i), io.load(f + i),
                                 io.load(p + i), io.load(t + i)),
             dx + at);
  });
}

void GradientsF32(const float* dy, const float* x, std::int64_t n, std::int64_t width, const float* mean,
                  float* sums, float* products) {
  add_gradients(dy, x, n, width, mean, sums, products);
}
void GradientsI32(const float* dy, const std::int32_t* x, std::int64_t n, std::int64_t width,
                  const float* mean, float* sums, float* products) {
  add_gradients(dy, x, n, width, mean, sums, products);
}
void NormalizeBackwardF32(const float* dy, const float* x, std::int64_t n, std::int64_t width, const float* m,
                          const float* f, const float* p, const float* t, float* dx) {
  normalize_gradient(dy, x, n, width, m, f, p, t, dx);
}
void NormalizeBackwardI32(const float* dy, const std::int32_t* x, std::int64_t n, std::int64_t width,
                          const float* m, const float* f, const float* p, const float* t, float* dx) {
  normalize_gradient(dy, x, n, width, m, f, p, t, dx);
}

}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fq {
HWY_EXPORT(MomentsF32);
HWY_EXPORT(AddIntegersI32);
HWY_EXPORT(GradientsF32);
HWY_EXPORT(GradientsI32);
HWY_EXPORT(Normalize);
HWY_EXPORT(NormalizeBackwardF32);
HWY_EXPORT(NormalizeBackwardI32);

namespace cpu {

void moment_sums(const float* x, std::int64_t count, std::int64_t width, const float* first, float* sums,
                 float* squares) {
  HWY_DYNAMIC_DISPATCH(MomentsF32)(x, count, width, first, sums, squares);
}
void integer_sums(const std::int32_t* x, std::int64_t count, std::int64_t width, detail::IntegerSums* sums) {
  std::fill_n(sums, width, detail::IntegerSums{});
  std::int64_t added = count / width * width;
  if (!HWY_DYNAMIC_DISPATCH(AddIntegersI32)(x, count / width, width, sums)) {
    std::fill_n(sums, width, detail::IntegerSums{});
    added = 0;
  }
  for (std::int64_t i = added; i < count; ++i) sums[i % width].add(x[i]);
}
void gradient_sums(const float* dy, const float* x, std::int64_t count, std::int64_t width, const float* mean,
                   float* sums, float* products) {
  HWY_DYNAMIC_DISPATCH(GradientsF32)(dy, x, count, width, mean, sums, products);
}
void gradient_sums(const float* dy, const std::int32_t* x, std::int64_t count, std::int64_t width,
                   const float* mean, float* sums, float* products) {
  HWY_DYNAMIC_DISPATCH(GradientsI32)(dy, x, count, width, mean, sums, products);
}
void normalize(const float* x, std::int64_t count, std::int64_t width, const float* mean, const float* factor,
               const float* shift, float* y) {
  HWY_DYNAMIC_DISPATCH(Normalize)(x, count, width, mean, factor, shift, y);
}
void normalize_backward(const float* dy, const float* x, std::int64_t count, std::int64_t width,
                        const float* mean, const float* factor, const float* slope, const float* shift,
                        float* dx) {
  HWY_DYNAMIC_DISPATCH(NormalizeBackwardF32)(dy, x, count, width, mean, factor, slope, shift, dx);
}
void normalize_backward(const float* dy, const std::int32_t* x, std::int64_t count, std::int64_t width,
                        const float* mean, const float* factor, const float* slope, const float* shift,
                        float* dx) {
  HWY_DYNAMIC_DISPATCH(NormalizeBackwardI32)(dy, x, count, width, mean, factor, slope, shift, dx);
}

}  // namespace cpu
}  // namespace fq
#endif
