#include "fakequant/core/backend/cpu/codes/accumulator_kernels.h"

#include "fakequant/core/backend/cpu/vector/cache.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fakequant/core/backend/cpu/codes/accumulator_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "fakequant/core/backend/cpu/vector/vector-inl.h"
//
#include "fakequant/core/backend/cpu/codes/codes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {
namespace {

using cpu::AdditionGrid;
using cpu::CodeArray;
using cpu::CodesOut;

// The parameters of an addition in all lanes. The code is computed as in ONNX Runtime's QLinearAdd, on the
// codes of the file, which have an offset.
struct Addition {
  FloatVector ratio_a, ratio_b, fused, offset_a, offset_b, offset_y, scale_a, scale_b;

  explicit Addition(const AdditionGrid& g)
      : ratio_a(hn::Set(FloatTag(), g.ratio_a)),
        ratio_b(hn::Set(FloatTag(), g.ratio_b)),
        fused(hn::Set(FloatTag(), g.fused)),
        offset_a(hn::Set(FloatTag(), g.offset_a)),
        offset_b(hn::Set(FloatTag(), g.offset_b)),
        offset_y(hn::Set(FloatTag(), g.offset_y)),
        scale_a(hn::Set(FloatTag(), g.scale_a)),
        scale_b(hn::Set(FloatTag(), g.scale_b)) {}
  FloatVector value(FloatVector a, FloatVector b) const {
    return add_(dequantize_code(a, scale_a), dequantize_code(b, scale_b));
  }
  FloatVector code(FloatVector a, FloatVector b, const SumReader& reader) const {
    return add_code(add_(a, offset_a), add_(b, offset_b), ratio_a, ratio_b, fused, offset_y, reader.lower,
                    reader.upper);
  }
};

template <class F>
void visit_out(const CodesOut& out, F&& f) {
  switch (out.dtype) {
    case DType::i8:
      return f(static_cast<std::int8_t*>(out.codes));
    case DType::u8:
      return f(static_cast<std::uint8_t*>(out.codes));
    case DType::i16:
      return f(static_cast<std::int16_t*>(out.codes));
    default:
      return f(static_cast<std::int32_t*>(out.codes));
  }
}

bool is_byte(DType dtype) { return dtype == DType::i8 || dtype == DType::u8; }

template <class F>
void visit_bytes(const CodeArray& codes, F&& f) {
  if (codes.dtype == DType::i8) return f(static_cast<const std::int8_t*>(codes.data));
  f(static_cast<const std::uint8_t*>(codes.data));
}

/// Calls f(a, b, begin, count), piece by piece: with the codes if both have 8 bits, else with their floats.
template <class F>
void visit_pairs(const CodeArray& a, const CodeArray& b, bool bytes, std::int64_t count, F&& f) {
  if (bytes && is_byte(a.dtype) && is_byte(b.dtype))
    return visit_bytes(a, [&](const auto* x) { visit_bytes(b, [&](const auto* y) { f(x, y, 0, count); }); });
  // A multiple of 8, so that each piece begins on a byte of the mask. The buffers fit into the first-level
  // cache.
  constexpr std::int64_t stretch = 512;
  float x[stretch], y[stretch];
  const auto one = hn::Set(FloatTag(), 1.0f);
  for (std::int64_t i = 0; i < count; i += stretch) {
    const std::int64_t length = std::min(stretch, count - i);
    decode_codes(a.from(i), length, one, x);
    decode_codes(b.from(i), length, one, y);
    f(static_cast<const float*>(x), static_cast<const float*>(y), i, length);
  }
}

// Keeps the number of template instances small: 8-bit codes added to wider ones are decoded by visit_pairs.
/// Calls f as visit_out does, except that 8-bit codes are written only to 8-bit codes.
template <class A, class F>
void visit_matching_out(const A*, const CodesOut& out, F&& f) {
  if constexpr (sizeof(A) != 1) return visit_out(out, f);
  if (out.dtype == DType::i8) return f(static_cast<std::int8_t*>(out.codes));
  f(static_cast<std::uint8_t*>(out.codes));
}

void RequantizeAddition(const CodeArray& a, const CodeArray& b, std::int64_t count, const AdditionGrid& grid,
                        const fq::detail::SumReader& r, const CodesOut& out) {
  const Addition sum(grid);
  const SumReader reader(r);
  const auto run = [&](const auto* x, const auto* y, std::int64_t begin, std::int64_t length) {
    visit_matching_out(x, out, [&](auto* codes) HWY_ATTR {
      visit_vectors(x, y, codes + begin, out.mask != nullptr ? out.mask + begin / 8 : nullptr, length,
                    [&](const auto* p, const auto* q, auto* to) HWY_ATTR {
                      const auto u = load_codes(p), v = load_codes(q);
                      store_codes(sum.code(u, v, reader), to);
                      // The mask refers to the float value, never to its position on the grid.
                      return reader.passes(sum.value(u, v));
                    });
    });
  };
  visit_pairs(a, b, is_byte(out.dtype), count, run);
}

// PooledSums: one multiplier for the tensor. It contains the division by the number of pixels.
void RequantizeSums(const std::int32_t* sums, std::int64_t count, float multiplier, float scale,
                    const fq::detail::SumReader& r, const CodesOut& out) {
  const auto m = hn::Set(FloatTag(), multiplier), s = hn::Set(FloatTag(), scale);
  const SumReader reader(r);
  visit_out(out, [&](auto* codes) HWY_ATTR {
    visit_vectors(sums, sums, codes, out.mask, count, [&](const auto* p, const auto*, auto* to) HWY_ATTR {
      const auto v = load_codes(p);
      store_codes(requantize_code(v, m, reader.lower, reader.upper), to);
      return reader.passes(dequantize_code(v, s));
    });
  });
}

void RequantizeAverages(const float* values, std::int64_t count, float scale, float offset,
                        const fq::detail::SumReader& r, const CodesOut& out) {
  const auto s = hn::Set(FloatTag(), scale), z = hn::Set(FloatTag(), offset);
  const SumReader reader(r);
  visit_out(out, [&](auto* codes) HWY_ATTR {
    visit_vectors(values, values, codes, out.mask, count, [&](const auto* p, const auto*, auto* to) HWY_ATTR {
      const auto v = load_codes(p);
      store_codes(average_code(v, s, z, reader.lower, reader.upper), to);
      return reader.passes(v);
    });
  });
}

void AdditionValues(const CodeArray& a, const CodeArray& b, std::int64_t count, float scale_a, float scale_b,
                    float* out) {
  const auto s = hn::Set(FloatTag(), scale_a), t = hn::Set(FloatTag(), scale_b);
  visit_pairs(
      a, b, true, count, [&](const auto* x, const auto* y, std::int64_t begin, std::int64_t length) HWY_ATTR {
        visit_vectors(
            x, y, out + begin, nullptr, length, [&](const auto* p, const auto* q, float* to) HWY_ATTR {
              const auto v = add_(dequantize_code(load_codes(p), s), dequantize_code(load_codes(q), t));
              hn::StoreU(v, FloatTag(), to);
              // There is no mask: every result is ignored.
              return less_(v, v);
            });
      });
}

void Relu(float* values, std::int64_t count, std::uint8_t* mask) {
  const auto zero = hn::Zero(FloatTag());
  visit_vectors(values, values, values, mask, count, [&](const auto* p, const auto*, auto* to) HWY_ATTR {
    const auto v = load_codes(p);
    hn::StoreU(max_(v, zero), FloatTag(), to);
    return less_(zero, v);
  });
}

using cpu::SumGrid;
using cpu::SumValues;

/// Reads the sums of a run: of one channel, or of channels that advance with the elements.
// The two flags are template parameters, so that the inner loops have no branches.
template <bool innermost, bool normalized>
struct Sums {
  const std::int32_t* sums;
  const SumValues& numbers;

  static FloatVector at(const float* p, std::int64_t i) {
    if constexpr (innermost) return hn::LoadU(FloatTag(), p + i);
    return hn::Set(FloatTag(), *p);
  }
  // The bias is a code on the grid of the sums, so its addition is exact. One rounding follows, to float.
  auto bias(std::int64_t i) const {
    const IntTag d;
    if (numbers.bias == nullptr) return hn::Zero(d);
    if constexpr (innermost) return hn::LoadU(d, numbers.bias + i);
    return hn::Set(d, *numbers.bias);
  }
  FloatVector operator()(std::int64_t i) const {
    return hn::ConvertTo(FloatTag(), hn::Add(hn::LoadU(IntTag(), sums + i), bias(i)));
  }
  FloatVector value(FloatVector a, std::int64_t i) const {
    if constexpr (normalized) return normalized_sum(a, at(numbers.scale, i), at(numbers.shift, i));
    return dequantize_code(a, at(numbers.scale, i));
  }
};

// NaN does not occur here: accumulator_codes has checked the coefficients of batch normalization.
template <bool innermost, bool normalized, class Code>
std::int64_t requantize_run(const std::int32_t* sums, std::int64_t count, const SumGrid& g, Code* codes,
                            std::uint8_t* mask) {
  using Run = Sums<innermost, normalized>;
  const Run run{sums, g.values};
  const SumReader reader(g.reader);
  const auto code = [&](FloatVector a, std::int64_t i) HWY_ATTR {
    if constexpr (normalized)
      return normalized_code(a, Run::at(g.multiplier, i), Run::at(g.offset, i), reader.lower, reader.upper);
    else
      return requantize_code(a, Run::at(g.multiplier, i), reader.lower, reader.upper);
  };
  return visit_groups(count, mask, [&](std::int64_t i) HWY_ATTR {
    const auto a = run(i);
    store_codes(code(a, i), codes + i);
    return reader.passes(run.value(a, i));
  });
}

template <bool normalized, class Code>
std::int64_t requantize_runs(const std::int32_t* sums, std::int64_t count, const SumGrid& g, Code* codes,
                             std::uint8_t* mask) {
  if (g.width == 0) return requantize_run<false, normalized>(sums, count, g, codes, mask);
  std::int64_t done = 0;
  for (std::int64_t i = 0; i < count; i += g.width)
    // Only the last run can be shorter than the width and end before its last elements.
    done = i + requantize_run<true, normalized>(sums + i, count - i < g.width ? count - i : g.width, g,
                                                codes + i, mask != nullptr ? mask + i / 8 : nullptr);
  return done;
}

template <class Code>
std::int64_t requantize_sums(const std::int32_t* sums, std::int64_t count, const SumGrid& g, Code* codes,
                             std::uint8_t* mask) {
  return g.offset != nullptr ? requantize_runs<true>(sums, count, g, codes, mask)
                             : requantize_runs<false>(sums, count, g, codes, mask);
}

template <bool innermost, bool normalized>
std::int64_t write_sum_values(const std::int32_t* sums, std::int64_t count, const SumValues& numbers,
                              float* y) {
  const FloatTag d;
  const Sums<innermost, normalized> run{sums, numbers};
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t done = count / lanes * lanes;
  for (std::int64_t i = 0; i < done; i += lanes) {
    cpu::fetch_ahead(y + i);
    hn::StoreU(run.value(run(i), i), d, y + i);
  }
  return done;
}

// Only 8-bit codes have vector kernels for channels. Wider codes are rare, and use the scalar formula.
std::int64_t RequantizeI8(const std::int32_t* sums, std::int64_t n, const SumGrid& g, std::int8_t* codes,
                          std::uint8_t* mask) {
  return requantize_sums(sums, n, g, codes, mask);
}
std::int64_t RequantizeU8(const std::int32_t* sums, std::int64_t n, const SumGrid& g, std::uint8_t* codes,
                          std::uint8_t* mask) {
  return requantize_sums(sums, n, g, codes, mask);
}
std::int64_t ValuesOfSums(const std::int32_t* sums, std::int64_t n, const SumValues& v, bool innermost,
                          float* y) {
  if (v.shift != nullptr)
    return innermost ? write_sum_values<true, true>(sums, n, v, y)
                     : write_sum_values<false, true>(sums, n, v, y);
  return innermost ? write_sum_values<true, false>(sums, n, v, y)
                   : write_sum_values<false, false>(sums, n, v, y);
}

}  // namespace

}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fq {
HWY_EXPORT(RequantizeAddition);
HWY_EXPORT(RequantizeSums);
HWY_EXPORT(RequantizeAverages);
HWY_EXPORT(AdditionValues);
HWY_EXPORT(Relu);
HWY_EXPORT(RequantizeI8);
HWY_EXPORT(RequantizeU8);
HWY_EXPORT(ValuesOfSums);

namespace cpu {

void requantize_addition(const CodeArray& a, const CodeArray& b, std::int64_t count, const AdditionGrid& grid,
                         const SumReader& reader, const CodesOut& out) {
  HWY_DYNAMIC_DISPATCH(RequantizeAddition)(a, b, count, grid, reader, out);
}
void requantize_sums(const std::int32_t* sums, std::int64_t count, float multiplier, float scale,
                     const SumReader& reader, const CodesOut& out) {
  HWY_DYNAMIC_DISPATCH(RequantizeSums)(sums, count, multiplier, scale, reader, out);
}
void requantize_averages(const float* values, std::int64_t count, float scale, float offset,
                         const SumReader& reader, const CodesOut& out) {
  HWY_DYNAMIC_DISPATCH(RequantizeAverages)(values, count, scale, offset, reader, out);
}
void addition_values(const CodeArray& a, const CodeArray& b, std::int64_t count, float scale_a, float scale_b,
                     float* y) {
  HWY_DYNAMIC_DISPATCH(AdditionValues)(a, b, count, scale_a, scale_b, y);
}
void relu(float* values, std::int64_t count, std::uint8_t* mask) {
  HWY_DYNAMIC_DISPATCH(Relu)(values, count, mask);
}

std::int64_t requantize(const std::int32_t* sums, std::int64_t count, const SumGrid& grid, std::int8_t* codes,
                        std::uint8_t* mask) {
  return HWY_DYNAMIC_DISPATCH(RequantizeI8)(sums, count, grid, codes, mask);
}
std::int64_t requantize(const std::int32_t* sums, std::int64_t count, const SumGrid& grid,
                        std::uint8_t* codes, std::uint8_t* mask) {
  return HWY_DYNAMIC_DISPATCH(RequantizeU8)(sums, count, grid, codes, mask);
}
std::int64_t sum_values(const std::int32_t* sums, std::int64_t count, const SumValues& values, bool innermost,
                        float* y) {
  return HWY_DYNAMIC_DISPATCH(ValuesOfSums)(sums, count, values, innermost, y);
}

}  // namespace cpu

}  // namespace fq
#endif
