#include "fakequant/core/backend/cpu/update/update_kernels.h"

#include "fakequant/core/backend/cpu/vector/cache.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fakequant/core/backend/cpu/update/update_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "fakequant/core/backend/cpu/vector/lanes-inl.h"
#include "fakequant/core/numerics/number_formats.h"

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Primitives of update_formulas-inl.h for vectors of float and double.
template <class V>
HWY_INLINE V add_(V a, V b) {
  return hn::Add(a, b);
}
template <class V>
HWY_INLINE V sub_(V a, V b) {
  return hn::Sub(a, b);
}
template <class V>
HWY_INLINE V mul_(V a, V b) {
  return hn::Mul(a, b);
}
template <class V>
HWY_INLINE V div_(V a, V b) {
  return hn::Div(a, b);
}
template <class V>
HWY_INLINE V sqrt_(V a) {
  return hn::Sqrt(a);
}

}  // namespace
}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#define FQ_FORMULAS_VECTOR
#include "fakequant/core/numerics/detail/update_formulas-inl.h"
#undef FQ_FORMULAS_VECTOR

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {
namespace {

template <class T>
HWY_ATTR Lanes<T> set(T value) {
  return hn::Set(LaneTag<T>(), value);
}

// PyTorch's order: scale of the gradient, weight decay, momentum, then the step.
template <class T>
void sgd(const cpu::SgdArrays<T>& a, const cpu::SgdFactors<T>& f, std::int64_t begin, std::int64_t end) {
  visit_vectors<T>(begin, end, [&](std::int64_t i, auto io) HWY_ATTR {
    // A step reads each array only once, so the data is rarely in a cache.
    cpu::fetch_ahead(a.parameter + i);
    cpu::fetch_ahead(a.gradient + i);
    if (a.momentum != nullptr) cpu::fetch_ahead(a.momentum + i);
    const auto p = io.load(a.parameter + i);
    const auto g = decayed_gradient(io.load(a.gradient + i), set(f.scale), p, set(a.weight_decay));
    auto direction = g;
    // Nesterov's variant as in torch.optim.SGD: g + momentum * m.
    if (a.momentum != nullptr) {
      const auto m = sgd_momentum(io.load(a.momentum + i), set(f.momentum), g);
      io.store(m, a.momentum + i);
      direction = f.nesterov ? nesterov_direction(g, m, set(f.momentum)) : m;
    }
    io.store(sgd_parameter(p, direction, set(a.learning_rate)), a.parameter + i);
  });
}

// Adam and AdamW (Kingma and Ba 2015; Loshchilov and Hutter 2019).
template <class T>
void adam(const cpu::AdamArrays<T>& a, const cpu::AdamFactors<T>& f, std::int64_t begin, std::int64_t end) {
  visit_vectors<T>(begin, end, [&](std::int64_t i, auto io) HWY_ATTR {
    cpu::fetch_ahead(a.parameter + i);
    cpu::fetch_ahead(a.gradient + i);
    cpu::fetch_ahead(a.mean + i);
    cpu::fetch_ahead(a.square + i);
    // `keep` is 1 - lr * decay for decoupled weight decay (AdamW), else 1.
    const auto p = mul_(io.load(a.parameter + i), set(a.keep));
    // The bias corrections are in `rate` and `root`, computed once per step.
    const auto g = decayed_gradient(io.load(a.gradient + i), set(f.scale), p, set(a.weight_decay));
    const auto m = adam_mean(io.load(a.mean + i), set(f.beta1), g, set(f.rest1));
    const auto v = adam_square(io.load(a.square + i), set(f.beta2), g, set(f.rest2));
    io.store(m, a.mean + i);
    io.store(v, a.square + i);
    io.store(adam_parameter(p, m, set(a.rate), v, set(a.root), set(f.eps)), a.parameter + i);
  });
}

}  // namespace

// Highway exports functions, not templates.
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
