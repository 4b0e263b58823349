#include "fakequant/calib/detail/histogram_methods.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fakequant/calib/histogram.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/io/state_dict.h"

namespace fq::detail {
namespace {

constexpr HistogramReading kReadings[]{
    {"percentile", "histogram",
     [](const Histogram& h, const AmaxOptions& o) { return amax_by_percentile(h, o.percentile); }},
    {"entropy",
     {},
     [](const Histogram& h, const AmaxOptions& o) {
       return amax_by_entropy(h, o.num_bits, o.is_unsigned, o.stride, o.start_bin, nullptr, false,
                              o.limits_clipping);
     }},
    {"mse",
     {},
     [](const Histogram& h, const AmaxOptions& o) {
       return amax_by_mse(h, o.num_bits, o.is_unsigned, o.stride, o.start_bin);
     }},
    {"octav",
     {},
     [](const Histogram& h, const AmaxOptions& o) { return amax_by_octav(h, o.num_bits, o.is_unsigned); },
     true},
};

}  // namespace

bool is_empty(const Histogram& h, const char* where) {
  FQ_CHECK(h.counts.empty() || h.edges.size() == h.counts.size() + 1, where,
           "{} counts and {} edges: use one edge more than counts", h.counts.size(), h.edges.size());
  // Limits the total, so that sums of counts cannot overflow anywhere.
  std::int64_t left = std::numeric_limits<std::int64_t>::max() / 2;
  for (const std::int64_t count : h.counts) {
    FQ_CHECK(count >= 0 && count <= left, where,
             "a count is {}: counts must not be negative, nor pass 2^62 together", count);
    left -= count;
  }
  return h.counts.empty();
}

void check_search(const char* where, std::size_t bins, int stride, int start_bin, int lowest,
                  std::size_t highest) {
  FQ_CHECK(stride >= 1, where, "stride is {}: use 1 or more", stride);
  FQ_CHECK(start_bin >= lowest && static_cast<std::size_t>(start_bin) <= highest, where,
           "start_bin is {} and the histogram has {} bins: use {} to {}", start_bin, bins, lowest, highest);
}

std::span<const HistogramReading> histogram_readings() noexcept { return kReadings; }

const HistogramReading* find_histogram_reading(std::string_view name) noexcept {
  const auto* found = std::ranges::find_if(
      kReadings, [&](const auto& r) { return r.name == name || (!name.empty() && r.alias == name); });
  return found == std::end(kReadings) ? nullptr : found;
}

void check_histogram_method(std::string_view method) {
  std::vector<std::string> names;
  for (const auto& reading : kReadings)
    for (const auto name : {reading.name, reading.alias})
      if (!name.empty()) names.emplace_back(name);
  FQ_CHECK(find_histogram_reading(method) != nullptr, "histogram_calibrator", "the method '{}' is unknown{}",
           method, did_you_mean(method, names));
}

float histogram_amax(const Histogram& histogram, std::string_view method, const AmaxOptions& options) {
  check_histogram_method(method);
  return find_histogram_reading(method)->amax(histogram, options);
}

void save_histogram(const Histogram& h, StateDict& state) {
  state.set("counts", Tensor::from(h.counts, {static_cast<std::int64_t>(h.counts.size())}));
  const auto edges = static_cast<std::int64_t>(h.edges.size());
  state.set("edges",
            h.wide_edges.empty() ? Tensor::from(h.edges, {edges}) : Tensor::from(h.wide_edges, {edges}));
  state.set("zeros", Tensor::from({h.zeros}));
}

// A state comes from a file: everything that the methods rely on is checked here.
Histogram load_histogram(const StateDict& state, bool from_zero, const char* where) {
  const std::int64_t bins = state.at("counts").numel();
  // Only the numpy grid has f64 edges, and only after it has grown.
  const bool wide = !from_zero && state.at("edges").dtype() == DType::f64;
  const Tensor edges = state.at("edges", {bins == 0 ? 0 : bins + 1}, wide ? DType::f64 : DType::f32);
  Histogram loaded{state.at("counts", {bins}, DType::i64).to_vector<std::int64_t>(),
                   edges.to(DType::f32).to_vector<float>(),
                   state.at("zeros", {1}, DType::i64).data<std::int64_t>()[0],
                   wide ? edges.to_vector<double>() : std::vector<double>{}};
  const auto negative = [](std::int64_t count) { return count < 0; };
  // Also true for NaN, which is not below any edge.
  const auto falls = [](double a, double b) { return !(a < b) || !std::isfinite(b); };
  const auto in_order = edges.to(DType::f64).to_vector<double>();
  // Adjacent edges must rise strictly: a bin of width 0 or NaN would break the searches.
  const bool good = std::ranges::none_of(loaded.counts, negative) && loaded.zeros >= 0 &&
                    bins <= Histogram::max_bins &&
                    std::ranges::adjacent_find(in_order, falls) == in_order.end() &&
                    (bins == 0 || loaded.edges[0] == 0 || !from_zero);
  FQ_CHECK(good, where,
           "the state is not a histogram: counts must not be negative and edges must rise from 0");
  return loaded;
}

}  // namespace fq::detail
