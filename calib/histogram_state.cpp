#include "fakequant/calib/histogram_state.h"

#include <algorithm>
#include <cmath>

#include "fakequant/core/check.h"
#include "fakequant/core/io/state_dict.h"

namespace fq::detail {

void save_histogram(const Histogram& h, StateDict& state) {
  state.set("counts", Tensor::from(h.counts, {static_cast<std::int64_t>(h.counts.size())}));
  state.set("edges", Tensor::from(h.edges, {static_cast<std::int64_t>(h.edges.size())}));
  state.set("zeros", Tensor::from({h.zeros}));
}

Histogram load_histogram(const StateDict& state, bool from_zero, const char* where) {
  const std::int64_t bins = state.at("counts").numel();
  Histogram loaded{state.at("counts", {bins}, DType::i64).to_vector<std::int64_t>(),
                   state.at("edges", {bins == 0 ? 0 : bins + 1}, DType::f32).to_vector<float>(),
                   state.at("zeros", {1}, DType::i64).data<std::int64_t>()[0]};
  const auto negative = [](std::int64_t count) { return count < 0; };
  const auto falls = [](float a, float b) { return !(a < b) || !std::isfinite(b); };
  const bool good = std::ranges::none_of(loaded.counts, negative) && loaded.zeros >= 0 &&
                    bins <= Histogram::max_bins &&
                    std::ranges::adjacent_find(loaded.edges, falls) == loaded.edges.end() &&
                    (bins == 0 || loaded.edges[0] == 0 || !from_zero);
  FQ_CHECK(good, where, "the state is no histogram: counts must not be negative and edges must rise from 0");
  return loaded;
}

}  // namespace fq::detail
