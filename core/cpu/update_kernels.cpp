#include "fakequant/core/cpu/update_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fakequant/core/cpu/update_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "fakequant/core/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
HWY_ATTR Lanes<T> scaled(Lanes<T> v, T factor) {
  return hn::Mul(v, hn::Set(LaneTag<T>(), factor));
}

template <class T>
void sgd(const cpu::SgdArrays<T>& a, const cpu::SgdFactors<T>& f, std::int64_t begin, std::int64_t end) {
  for_vectors<T>(begin, end, [&](std::int64_t i, auto io) HWY_ATTR {
    const auto p = io.load(a.parameter + i);
    const auto g = hn::Add(scaled(io.load(a.gradient + i), f.scale), scaled(p, a.weight_decay));
    auto direction = g;
    if (a.momentum != nullptr) {
      const auto m = hn::Add(scaled(io.load(a.momentum + i), f.momentum), g);
      io.store(m, a.momentum + i);
      direction = f.nesterov ? hn::Add(g, scaled(m, f.momentum)) : m;
    }
    io.store(hn::Sub(p, scaled(direction, a.learning_rate)), a.parameter + i);
  });
}

template <class T>
void adam(const cpu::AdamArrays<T>& a, const cpu::AdamFactors<T>& f, std::int64_t begin, std::int64_t end) {
  for_vectors<T>(begin, end, [&](std::int64_t i, auto io) HWY_ATTR {
    const auto p = scaled(io.load(a.parameter + i), a.keep);
    const auto g = hn::Add(scaled(io.load(a.gradient + i), f.scale), scaled(p, a.weight_decay));
    const auto m = hn::Add(scaled(io.load(a.mean + i), f.beta1), scaled(g, f.rest1));
    const auto v = hn::Add(scaled(io.load(a.square + i), f.beta2), hn::Mul(scaled(g, f.rest2), g));
    io.store(m, a.mean + i);
    io.store(v, a.square + i);
    const auto root = hn::Add(scaled(hn::Sqrt(v), a.root), hn::Set(LaneTag<T>(), f.eps));
    io.store(hn::Sub(p, hn::Div(scaled(m, a.rate), root)), a.parameter + i);
  });
}

}  // namespace

void SgdF32(const cpu::SgdArrays<float>& a, const cpu::SgdFactors<float>& f, std::int64_t begin,
            std::int64_t end) {
  sgd(a, f, begin, end);
}
void SgdF64(const cpu::SgdArrays<double>& a, const cpu::SgdFactors<double>& f, std::int64_t begin,
            std::int64_t end) {
  sgd(a, f, begin, end);
}
void AdamF32(const cpu::AdamArrays<float>& a, const cpu::AdamFactors<float>& f, std::int64_t begin,
             std::int64_t end) {
  adam(a, f, begin, end);
}
void AdamF64(const cpu::AdamArrays<double>& a, const cpu::AdamFactors<double>& f, std::int64_t begin,
             std::int64_t end) {
  adam(a, f, begin, end);
}

}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fq {
HWY_EXPORT(SgdF32);
HWY_EXPORT(SgdF64);
HWY_EXPORT(AdamF32);
HWY_EXPORT(AdamF64);

namespace cpu {

void update(const SgdArrays<float>& a, const SgdFactors<float>& f, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(SgdF32)(a, f, begin, end);
}
void update(const SgdArrays<double>& a, const SgdFactors<double>& f, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(SgdF64)(a, f, begin, end);
}
void update(const AdamArrays<float>& a, const AdamFactors<float>& f, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(AdamF32)(a, f, begin, end);
}
void update(const AdamArrays<double>& a, const AdamFactors<double>& f, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(AdamF64)(a, f, begin, end);
}

}  // namespace cpu
}  // namespace fq
#endif
