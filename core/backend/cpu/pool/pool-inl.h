// Loops over the channels of a pixel in vectors of any element type. Include in a source that uses
// foreach_target.h; not a public header. Included once for each target, hence no pragma once.

#if defined(FQ_POOL_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FQ_POOL_INL_H
#undef FQ_POOL_INL_H
#else
#define FQ_POOL_INL_H
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Calls f(tag, c) for vectors that cover all channels from c. The last vector overlaps the one before it.
template <class D, class F>
HWY_INLINE void visit_channel_vectors(D d, std::int64_t channels, F&& f) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t c = 0;
  for (; c + lanes <= channels; c += lanes) f(d, c);
  if (c < channels) f(d, channels - lanes);
}

/// Calls f with the widest vectors of T that are not wider than all channels.
template <class T, class F>
HWY_INLINE void visit_channels(std::int64_t channels, F&& f) {
  const hn::ScalableTag<T> full;
  const hn::CappedTag<T, 16 / sizeof(T)> narrow;
  const hn::CappedTag<T, 1> one;
  if (channels >= static_cast<std::int64_t>(hn::Lanes(full))) return visit_channel_vectors(full, channels, f);
  if (channels >= static_cast<std::int64_t>(hn::Lanes(narrow)))
    return visit_channel_vectors(narrow, channels, f);
  visit_channel_vectors(one, channels, f);
}

}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
