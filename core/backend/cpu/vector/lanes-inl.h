// Loops over any number of f32 or f64 elements, vector by vector. Include in a source that uses
// foreach_target.h; not a public header. Included once for each target, hence no pragma once.

#if defined(FQ_LANES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FQ_LANES_INL_H
#undef FQ_LANES_INL_H
#else
#define FQ_LANES_INL_H
#endif

#include <algorithm>
#include <cstdint>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {

template <class T>
using LaneTag = hwy::HWY_NAMESPACE::ScalableTag<T>;
template <class T>
using Lanes = hwy::HWY_NAMESPACE::Vec<LaneTag<T>>;

template <class T>
HWY_ATTR Lanes<T> load_lanes(const T* p) {
  return hwy::HWY_NAMESPACE::LoadU(LaneTag<T>(), p);
}
/// Converts sums to floats.
template <class T>
HWY_ATTR Lanes<float> load_lanes(const std::int32_t* p) {
  const hwy::HWY_NAMESPACE::RebindToSigned<LaneTag<float>> d;
  return hwy::HWY_NAMESPACE::ConvertTo(LaneTag<float>(), hwy::HWY_NAMESPACE::LoadU(d, p));
}

#if !HWY_MEM_OPS_MIGHT_FAULT
/// Loads the first `count` lanes; the other lanes are 0.
template <class T>
HWY_ATTR Lanes<T> load_lanes(const T* p, std::int64_t count) {
  const LaneTag<T> d;
  return hwy::HWY_NAMESPACE::MaskedLoad(hwy::HWY_NAMESPACE::FirstN(d, static_cast<std::size_t>(count)), d, p);
}
template <class T>
HWY_ATTR Lanes<float> load_lanes(const std::int32_t* p, std::int64_t count) {
  const hwy::HWY_NAMESPACE::RebindToSigned<LaneTag<float>> d;
  const auto first = hwy::HWY_NAMESPACE::FirstN(d, static_cast<std::size_t>(count));
  return hwy::HWY_NAMESPACE::ConvertTo(LaneTag<float>(), hwy::HWY_NAMESPACE::MaskedLoad(first, d, p));
}
template <class T>
HWY_ATTR void store_lanes(Lanes<T> v, T* p, std::int64_t count) {
  const LaneTag<T> d;
  hwy::HWY_NAMESPACE::BlendedStore(v, hwy::HWY_NAMESPACE::FirstN(d, static_cast<std::size_t>(count)), d, p);
}
#else
template <class T, class X>
HWY_ATTR Lanes<T> load_lanes(const X* p, std::int64_t count) {
  X values[HWY_MAX_BYTES / sizeof(X)] = {};
  std::copy_n(p, count, values);
  return load_lanes<T>(values);
}
template <class T>
HWY_ATTR void store_lanes(Lanes<T> v, T* p, std::int64_t count) {
  T values[HWY_MAX_BYTES / sizeof(T)];
  hwy::HWY_NAMESPACE::StoreU(v, LaneTag<T>(), values);
  std::copy_n(values, count, p);
}
#endif

/// Loads and stores of whole vectors, and of the last elements, which do not fill a vector.
template <class T>
struct Whole {
  template <class X>
  HWY_ATTR Lanes<T> load(const X* p) const {
    return load_lanes<T>(p);
  }
  HWY_ATTR void store(Lanes<T> v, T* p) const { hwy::HWY_NAMESPACE::StoreU(v, LaneTag<T>(), p); }
};
template <class T>
struct Some {
  std::int64_t count;
  template <class X>
  HWY_ATTR Lanes<T> load(const X* p) const {
    return load_lanes<T>(p, count);
  }
  HWY_ATTR void store(Lanes<T> v, T* p) const { store_lanes<T>(v, p, count); }
};

/// Calls step(i, io) for every vector of [begin, end).
template <class T, class Step>
void visit_vectors(std::int64_t begin, std::int64_t end, const Step& step) {
  const auto width = static_cast<std::int64_t>(hwy::HWY_NAMESPACE::Lanes(LaneTag<T>()));
  std::int64_t i = begin;
  for (; i + width <= end; i += width) step(i, Whole<T>());
  if (i < end) step(i, Some<T>{end - i});
}

}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
