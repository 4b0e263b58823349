#include "fakequant/calib/detail/histogram_state.h"

#include <algorithm>
#include <cmath>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/state_dict.h"

namespace fq::detail {

void save_histogram(const Histogram& h, StateDict& state) {
  state.set("counts", Tensor::from(h.counts, {static_cast<std::int64_t>(h.counts.size())}));
  const auto edges = static_cast<std::int64_t>(h.edges.size());
  state.set("edges",
            h.wide_edges.empty() ? Tensor::from(h.edges, {edges}) : Tensor::from(h.wide_edges, {edges}));
  state.set("zeros", Tensor::from({h.zeros}));
}

Histogram load_histogram(const StateDict& state, bool from_zero, const char* where) {
  const std::int64_t bins = state.at("counts").numel();
  const bool wide = !from_zero && state.at("edges").dtype() == DType::f64;
  const Tensor edges = state.at("edges", {bins == 0 ? 0 : bins + 1}, wide ? DType::f64 : DType::f32);
  Histogram loaded{state.at("counts", {bins}, DType::i64).to_vector<std::int64_t>(),
                   edges.to(DType::f32).to_vector<float>(),
                   state.at("zeros", {1}, DType::i64).data<std::int64_t>()[0],
                   wide ? edges.to_vector<double>() : std::vector<double>{}};
  const auto negative = [](std::int64_t count) { return count < 0; };
  const auto falls = [](double a, double b) { return !(a < b) || !std::isfinite(b); };
  const auto in_order = edges.to(DType::f64).to_vector<double>();
  const bool good = std::ranges::none_of(loaded.counts, negative) && loaded.zeros >= 0 &&
                    bins <= Histogram::max_bins &&
                    std::ranges::adjacent_find(in_order, falls) == in_order.end() &&
                    (bins == 0 || loaded.edges[0] == 0 || !from_zero);
  FQ_CHECK(good, where, "the state is no histogram: counts must not be negative and edges must rise from 0");
  return loaded;
}

}  // namespace fq::detail
