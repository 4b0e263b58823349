// The optimizers' formulas, each written once for a value type V that is a float, a double, or a vector of
// them. Included like formulas-inl.h, hence no pragma once. Not a public header.

#if defined(FQ_UPDATE_FORMULAS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FQ_UPDATE_FORMULAS_INL_H
#undef FQ_UPDATE_FORMULAS_INL_H
#else
#define FQ_UPDATE_FORMULAS_INL_H
#endif

#ifdef FQ_FORMULAS_VECTOR
HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {
#else
namespace fq::scalar {
#endif

/// g = gradient * scale + p * weight_decay
template <class V>
FQ_HD V decayed_gradient(V gradient, V scale, V p, V weight_decay) {
  return add_(mul_(gradient, scale), mul_(p, weight_decay));
}

// ---- stochastic gradient descent: p -= rate * g, or m, or with Nesterov's g + momentum * m ----

template <class V>
FQ_HD V sgd_momentum(V m, V momentum, V g) {
  return add_(mul_(m, momentum), g);
}
template <class V>
FQ_HD V nesterov_direction(V g, V m, V momentum) {
  return add_(g, mul_(m, momentum));
}
template <class V>
FQ_HD V sgd_parameter(V p, V direction, V rate) {
  return sub_(p, mul_(direction, rate));
}

// ---- Adam: p is multiplied by `keep` first ----

template <class V>
FQ_HD V adam_mean(V m, V beta, V g, V rest) {
  return add_(mul_(m, beta), mul_(g, rest));
}
template <class V>
FQ_HD V adam_square(V v, V beta, V g, V rest) {
  return add_(mul_(v, beta), mul_(mul_(g, rest), g));
}
/// p - m * rate / (sqrt(v) * root + eps)
template <class V>
FQ_HD V adam_parameter(V p, V m, V rate, V v, V root, V eps) {
  return sub_(p, div_(mul_(m, rate), add_(mul_(sqrt_(v), root), eps)));
}

#ifdef FQ_FORMULAS_VECTOR
}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#else
}  // namespace fq::scalar
#endif

#endif  // toggle
