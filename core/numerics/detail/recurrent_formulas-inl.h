// The formulas of recurrent layers, each written once, forward next to backward, and included like
// formulas-inl.h, hence no pragma once. `Io` loads and stores one number or a vector of them. Not a public
// header.

#if defined(FQ_RECURRENT_FORMULAS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FQ_RECURRENT_FORMULAS_INL_H
#undef FQ_RECURRENT_FORMULAS_INL_H
#else
#define FQ_RECURRENT_FORMULAS_INL_H
#endif

#ifdef FQ_FORMULAS_VECTOR
HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {
#else
namespace fq::scalar {
#endif

/// sigmoid and tanh as in ONNX Runtime's f32 code (MLAS, after Eigen): odd rational functions of the clamped
/// input, with every product fused with its sum. The largest errors are 1.6e-7 and 3e-7. NaN stays.
template <class V>
FQ_HD V sigmoid_gate(V x) {
  const V v = clamp_keeping_(x, constant_(x, -18.0f), constant_(x, 18.0f)), s = mul_(v, v);
  V p = fma_(s, constant_(x, 4.37031012579801e-11f), constant_(x, 1.15627324459942e-07f));
  p = fma_(p, s, constant_(x, 6.08574864600143e-05f));
  p = fma_(p, s, constant_(x, 8.51377133304701e-03f));
  p = mul_(fma_(p, s, constant_(x, 2.48287947061529e-01f)), v);
  V q = fma_(s, constant_(x, 6.10247389755681e-13f), constant_(x, 5.76102136993427e-09f));
  q = fma_(q, s, constant_(x, 6.29106785017040e-06f));
  q = fma_(q, s, constant_(x, 1.70198817374094e-03f));
  q = fma_(q, s, constant_(x, 1.16817656904453e-01f));
  q = fma_(q, s, constant_(x, 9.93151921023180e-01f));
  return clamp_keeping_(add_(div_(p, q), constant_(x, 0.5f)), constant_(x, 0.0f), constant_(x, 1.0f));
}
template <class V>
FQ_HD V tanh_gate(V x) {
  const V v = clamp_keeping_(x, constant_(x, -9.0f), constant_(x, 9.0f)), s = mul_(v, v);
  V p = fma_(s, constant_(x, -2.76076847742355e-16f), constant_(x, 2.00018790482477e-13f));
  p = fma_(p, s, constant_(x, -8.60467152213735e-11f));
  p = fma_(p, s, constant_(x, 5.12229709037114e-08f));
  p = fma_(p, s, constant_(x, 1.48572235717979e-05f));
  p = fma_(p, s, constant_(x, 6.37261928875436e-04f));
  p = mul_(fma_(p, s, constant_(x, 4.89352455891786e-03f)), v);
  V q = fma_(s, constant_(x, 1.19825839466702e-06f), constant_(x, 1.18534705686654e-04f));
  q = fma_(q, s, constant_(x, 2.26843463243900e-03f));
  return div_(p, fma_(q, s, constant_(x, 4.89352518554385e-03f)));
}
/// The slopes of sigmoid and tanh as functions of their values.
template <class V>
FQ_HD V sigmoid_slope(V y) {
  return mul_(y, sub_(constant_(y, 1.0f), y));
}
template <class V>
FQ_HD V tanh_slope(V y) {
  return sub_(constant_(y, 1.0f), mul_(y, y));
}

/// The sum of a gate: fl(fl(of the input + of the state) + bias), column k of a row of `gates`.
template <class T, class Io>
FQ_HD auto gate_sum(const fq::detail::RecurrentArrays<T>& a, std::int64_t at, std::int64_t k, Io io) {
  return add_(add_(io.load(a.gates + at), io.load(a.of_state + at)), io.load(a.bias + k));
}

// ---- LSTM: c = f * c + i * g, h = o * tanh(c) ----

template <class T, class Io>
FQ_HD void lstm_step(const fq::detail::RecurrentArrays<T>& a, std::int64_t row, std::int64_t j, Io io) {
  const std::int64_t w = a.width, at = 4 * w * row + j, own = w * row + j;
  const auto i = sigmoid_gate(gate_sum(a, at, j, io)), f = sigmoid_gate(gate_sum(a, at + w, w + j, io)),
             g = tanh_gate(gate_sum(a, at + 2 * w, 2 * w + j, io)),
             o = sigmoid_gate(gate_sum(a, at + 3 * w, 3 * w + j, io));
  const auto c = add_(mul_(io.load(a.before + own), f), mul_(i, g));
  io.store(i, a.gates + at);
  io.store(f, a.gates + at + w);
  io.store(g, a.gates + at + 2 * w);
  io.store(o, a.gates + at + 3 * w);
  io.store(c, a.cell + own);
  io.store(mul_(o, tanh_gate(c)), a.state + own);
}
template <class T, class Io>
FQ_HD void lstm_gradient(const fq::detail::RecurrentGradients<T>& a, std::int64_t row, std::int64_t j,
                         Io io) {
  const std::int64_t w = a.width, at = 4 * w * row + j, own = w * row + j;
  const auto i = io.load(a.gates + at), f = io.load(a.gates + at + w), g = io.load(a.gates + at + 2 * w),
             o = io.load(a.gates + at + 3 * w), squashed = tanh_gate(io.load(a.cell + own));
  const auto dh = add_(io.load(a.dy + own), io.load(a.dstate + own));
  const auto dc = add_(io.load(a.carried + own), mul_(mul_(dh, o), tanh_slope(squashed)));
  io.store(mul_(mul_(dc, g), sigmoid_slope(i)), a.dgates + at);
  io.store(mul_(mul_(dc, io.load(a.before + own)), sigmoid_slope(f)), a.dgates + at + w);
  io.store(mul_(mul_(dc, i), tanh_slope(g)), a.dgates + at + 2 * w);
  io.store(mul_(mul_(dh, squashed), sigmoid_slope(o)), a.dgates + at + 3 * w);
  io.store(mul_(dc, f), a.carried + own);
}

// ---- GRU: n = tanh(a_n + r * b_n), h = n + z * (h - n) ----

template <class T, class Io>
FQ_HD void gru_step(const fq::detail::RecurrentArrays<T>& a, std::int64_t row, std::int64_t j, Io io) {
  const std::int64_t w = a.width, at = 3 * w * row + j, own = w * row + j;
  const auto r = sigmoid_gate(gate_sum(a, at, j, io)), z = sigmoid_gate(gate_sum(a, at + w, w + j, io));
  const auto of_state = add_(io.load(a.of_state + at + 2 * w), io.load(a.state_bias + j));
  const auto of_input = add_(io.load(a.gates + at + 2 * w), io.load(a.bias + 2 * w + j));
  const auto n = tanh_gate(add_(of_input, mul_(r, of_state)));
  io.store(r, a.gates + at);
  io.store(z, a.gates + at + w);
  io.store(n, a.gates + at + 2 * w);
  io.store(of_state, a.of_state + at + 2 * w);
  io.store(add_(n, mul_(z, sub_(io.load(a.before + own), n))), a.state + own);
}
template <class T, class Io>
FQ_HD void gru_gradient(const fq::detail::RecurrentGradients<T>& a, std::int64_t row, std::int64_t j, Io io) {
  const std::int64_t w = a.width, at = 3 * w * row + j, own = w * row + j;
  const auto r = io.load(a.gates + at), z = io.load(a.gates + at + w), n = io.load(a.gates + at + 2 * w);
  const auto dh = add_(add_(io.load(a.dy + own), io.load(a.dstate + own)), io.load(a.carried + own));
  const auto kept = mul_(dh, z), dn = mul_(sub_(dh, kept), tanh_slope(n));
  const auto dr = mul_(mul_(dn, io.load(a.of_state + at + 2 * w)), sigmoid_slope(r)),
             dz = mul_(mul_(dh, sub_(io.load(a.before + own), n)), sigmoid_slope(z));
  io.store(dr, a.dgates + at);
  io.store(dz, a.dgates + at + w);
  io.store(dn, a.dgates + at + 2 * w);
  io.store(dr, a.dof_state + at);
  io.store(dz, a.dof_state + at + w);
  io.store(mul_(dn, r), a.dof_state + at + 2 * w);
  io.store(kept, a.carried + own);
}

// ---- plain layers: h = f(a + b) ----

template <class T, class Io>
FQ_HD void rnn_step(const fq::detail::RecurrentArrays<T>& a, bool relu, std::int64_t row, std::int64_t j,
                    Io io) {
  const std::int64_t at = a.width * row + j;
  const auto sum = gate_sum(a, at, j, io);
  const auto h = relu ? max_(constant_(sum, 0.0f), sum) : tanh_gate(sum);
  io.store(h, a.gates + at);
  io.store(h, a.state + at);
}
template <class T, class Io>
FQ_HD void rnn_gradient(const fq::detail::RecurrentGradients<T>& a, bool relu, std::int64_t row,
                        std::int64_t j, Io io) {
  const std::int64_t at = a.width * row + j;
  const auto h = io.load(a.gates + at), dh = add_(io.load(a.dy + at), io.load(a.dstate + at));
  const auto zero = constant_(h, 0.0f);
  io.store(relu ? select_(less_(zero, h), dh, zero) : mul_(dh, tanh_slope(h)), a.dgates + at);
}

template <class T, class Io>
FQ_HD void recurrent_step(fq::detail::RecurrentCell cell, const fq::detail::RecurrentArrays<T>& a,
                          std::int64_t row, std::int64_t j, Io io) {
  using fq::detail::RecurrentCell;
  if (cell == RecurrentCell::lstm) return lstm_step(a, row, j, io);
  if (cell == RecurrentCell::gru) return gru_step(a, row, j, io);
  rnn_step(a, cell == RecurrentCell::rnn_relu, row, j, io);
}
template <class T, class Io>
FQ_HD void recurrent_gradient(fq::detail::RecurrentCell cell, const fq::detail::RecurrentGradients<T>& a,
                              std::int64_t row, std::int64_t j, Io io) {
  using fq::detail::RecurrentCell;
  if (cell == RecurrentCell::lstm) return lstm_gradient(a, row, j, io);
  if (cell == RecurrentCell::gru) return gru_gradient(a, row, j, io);
  rnn_gradient(a, cell == RecurrentCell::rnn_relu, row, j, io);
}

#ifdef FQ_FORMULAS_VECTOR
}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#else
}  // namespace fq::scalar
#endif

#endif  // toggle
