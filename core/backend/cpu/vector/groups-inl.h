// Loops over vectors with one packed mask bit per element. Include in a source that uses foreach_target.h,
// after vector-inl.h; not a public header. Included once for each target, hence no pragma once.

#if defined(FQ_GROUPS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FQ_GROUPS_INL_H
#undef FQ_GROUPS_INL_H
#else
#define FQ_GROUPS_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {

/// Returns the number of elements in whole vectors that fill whole mask bytes.
inline std::int64_t group() {
  return static_cast<std::int64_t>(hn::Lanes(FloatTag()) > 8 ? hn::Lanes(FloatTag()) : 8);
}

/// Calls step(i) -> mask for vectors at i, i + lanes, ..., in whole groups, and packs the masks. Returns the
/// number of processed elements.
template <class Step>
HWY_INLINE std::int64_t visit_groups(std::int64_t count, std::uint8_t* mask, Step&& step) {
  const FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t done = count / group() * group();
  if (lanes >= 8) {
    std::uint8_t bits[HWY_MAX_BYTES] = {};
    for (std::int64_t i = 0; i < done; i += lanes) {
      hn::StoreMaskBits(d, step(i), mask != nullptr ? mask + i / 8 : bits);
    }
    return done;
  }
  for (std::int64_t i = 0; i < done; i += 8) {
    unsigned byte = 0;
    for (std::int64_t k = 0; k < 8; k += lanes) {
      std::uint8_t bits[8] = {};
      hn::StoreMaskBits(d, step(i + k), bits);
      byte |= static_cast<unsigned>(bits[0]) << k;
    }
    if (mask != nullptr) mask[i / 8] = static_cast<std::uint8_t>(byte);
  }
  return done;
}

}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
