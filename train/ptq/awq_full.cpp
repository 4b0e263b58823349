#include "fakequant/train/ptq/detail/algorithm_entry.h"

namespace fq::ptq {

AlgorithmEntry awq_full_entry() {
  AlgorithmEntry both = awq_lite_entry();
  const AlgorithmEntry clip = awq_clip_entry();
  both.options.insert(both.options.end(), clip.options.begin(), clip.options.end());
  both.after = clip.after;
  return both;
}

}  // namespace fq::ptq
