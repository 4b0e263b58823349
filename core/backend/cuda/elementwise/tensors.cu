#include <cstring>

#include "fakequant/core/backend/cuda/loops/groups.cuh"
#include "fakequant/core/backend/cuda/loops/launch.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/numerics/detail/cast.h"

namespace fq::cuda {
namespace {

using fq::detail::from_double;

/// Calls f with a value of the C++ type of a convertible dtype. `Real` represents all its values. double
/// represents all but large i64; float represents types of at most 24 bits.
template <class Real, class F>
FQ_HD void visit_element(DType dtype, const F& f) {
  switch (dtype) {
    case DType::f32:
      return f(float{});
    case DType::f16:
      return f(float16{});
    case DType::bf16:
      return f(bfloat16{});
    case DType::i8:
      return f(std::int8_t{});
    case DType::u8:
      return f(std::uint8_t{});
    case DType::i16:
      return f(std::int16_t{});
    case DType::u16:
      return f(std::uint16_t{});
    default:
      break;
  }
  if constexpr (std::is_same_v<Real, double>) {
    if (dtype == DType::f64) return f(double{});
    if (dtype == DType::i32) return f(std::int32_t{});
    f(std::int64_t{});
  }
}

// Conversion through f32 is faster and exact for types of at most 24 bits.
bool fits_float(DType dtype) { return dtype != DType::f64 && dtype != DType::i32 && dtype != DType::i64; }

template <class T, class Real>
FQ_HD Real as_real(T value) {
  if constexpr (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>)
    return static_cast<Real>(static_cast<float>(value));
  else
    return static_cast<Real>(value);
}

/// Converts as from_double does.
template <class T>
FQ_HD T from_real(double value) {
  return from_double<T>(value);
}
template <class T>
FQ_HD T from_real(float value) {
  if constexpr (std::is_integral_v<T>) {
    using Limits = std::numeric_limits<T>;
    // The conversion of NaN to an integer is undefined in C++.
    if (value != value) return 0;
    const float lower = static_cast<float>(Limits::min()), upper = static_cast<float>(Limits::max());
    return static_cast<T>(std::nearbyint(value < lower ? lower : value > upper ? upper : value));
  } else {
    return T(value);
  }
}

template <class Real>
struct Convert {
  const void* in;
  void* out;
  DType from, to;

  FQ_HD void operator()(std::int64_t first, int count) const {
    Real v[group_size];
    // The dtypes are tested at run time: a kernel for each pair of dtypes would be too many.
    visit_element<Real>(from, [&]<class T>(T) {
      T own[group_size];
      load_group(static_cast<const T*>(in) + first, count, own);
      for (int j = 0; j < group_size; ++j) v[j] = as_real<T, Real>(own[j]);
    });
    visit_element<Real>(to, [&]<class T>(T) {
      T own[group_size];
      for (int j = 0; j < group_size; ++j) own[j] = from_real<T>(v[j]);
      store_group(static_cast<T*>(out) + first, count, own);
    });
  }
};

template <class Real>
void convert_typed(const Tensor& in, Tensor& out) {
  launch_groups(
      in.device(), in.numel(),
      Convert<Real>{device_data<void>(in), mutable_device_data<void>(out), in.dtype(), out.dtype()});
}

template <class Word>
struct Fill {
  Word* out;
  Word word;
  FQ_HD void operator()(std::int64_t first, int count) const {
    Word v[group_size];
    for (Word& each : v) each = word;
    store_group(out + first, count, v);
  }
};

}  // namespace

void fill(Tensor& out, double value) {
  // The host rounds the value, so every device fills with the same bits.
  const Tensor one = Tensor::full({1}, value, out.dtype());
  visit_word(bit_width(out.dtype()) / 8, [&]<class Word>(Word word) {
    std::memcpy(&word, one.raw(), sizeof word);
    launch_groups(out.device(), out.numel(), Fill<Word>{mutable_device_data<Word>(out), word});
  });
}

void convert(const Tensor& in, Tensor& out) {
  fits_float(in.dtype()) && fits_float(out.dtype()) ? convert_typed<float>(in, out)
                                                    : convert_typed<double>(in, out);
}

}  // namespace fq::cuda
