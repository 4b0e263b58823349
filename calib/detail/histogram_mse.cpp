#include <algorithm>
#include <limits>

#include "fakequant/calib/detail/histogram_methods.h"
#include "fakequant/core/backend/cpu/ranges/search_kernels.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/format.h"
#include "fakequant/core/numerics/detail/formulas.h"

namespace fq {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// Far above the relative error that the order of summation causes for 2^16 non-negative doubles.
constexpr double kOrder = 1 + 1e-9;
/// The first pass tries one of this number of candidates, so that others can stop once they exceed its error.
constexpr std::int64_t kCoarse = 32;

// Formulas of ModelOpt's fake_tensor_quant (narrow range) and scaled_e4m3, see docs/numerics.md.
cpu::FakeQuantRule make_rule(float amax, const Format& format) {
  if (!format.is_integer()) {
    const float scale = scalar::modelopt_e4m3_scale_divided(amax);
    return {.integer = false, .scale = scale, .inverse = 1.0f / scale};
  }
  const float scale = scalar::modelopt_scale(amax, static_cast<float>(format.bound()), true);
  return {.scale = scale,
          .divisor = scalar::modelopt_divisor(amax, scale, true),
          .lower = static_cast<float>(format.lower()),
          .upper = static_cast<float>(format.bound())};
}

float fake_quant(float x, const cpu::FakeQuantRule& r) {
  return r.integer ? scalar::modelopt_fake_quant(x, r.scale, r.divisor, r.lower, r.upper)
                   : scalar::modelopt_scaled_e4m3(x, r.scale, r.inverse);
}

/// The candidates, and their errors by two ways: in the order of the bins, which decides, and fast.
class Search {
 public:
  Search(const Histogram& h, const Format& format, int stride, int start_bin) : format_(format) {
    for (std::size_t k = 0; k < h.counts.size(); ++k) {
      centres_.push_back((h.edges[k] + h.edges[k + 1]) * 0.5f);
      counts_.push_back(static_cast<double>(h.counts[k]));
    }
    for (std::size_t k = static_cast<std::size_t>(start_bin); k < centres_.size();
         k += static_cast<std::size_t>(stride))
      candidates_.push_back(centres_[k]);
  }

  [[nodiscard]] const std::vector<float>& candidates() const noexcept { return candidates_; }

  [[nodiscard]] double error(float amax) const {
    const auto rule = make_rule(amax, format_);
    double sum = 0;
    for (std::size_t k = 0; k < centres_.size(); ++k) {
      if (counts_[k] == 0) continue;
      const double e = static_cast<double>(fake_quant(centres_[k], rule)) - static_cast<double>(centres_[k]);
      sum += e * e * counts_[k];
    }
    return sum / static_cast<double>(centres_.size());
  }

  /// Infinite for candidates that cannot have the smallest error.
  [[nodiscard]] std::vector<double> near_errors() const {
    const cpu::ErrorPoints points(centres_, counts_);
    std::vector<double> sums(candidates_.size(), kInfinity);
    const auto visit = [&](std::int64_t step, double limit) {
#pragma omp parallel for schedule(static, 8)
      for (std::int64_t i = 0; i < static_cast<std::int64_t>(sums.size()); i += step) {
        const auto k = static_cast<std::size_t>(i);
        sums[k] = cpu::squared_error(points, make_rule(candidates_[k], format_), limit);
      }
      return *std::ranges::min_element(sums) * kOrder;
    };
    // A candidate stops as soon as its partial sum exceeds the best error so far. The fast sums have another
    // order: kOrder covers the difference, and candidates near the minimum are summed again in bin order.
    const double lowest = visit(1, visit(kCoarse, kInfinity));
    for (std::size_t k = 0; k < sums.size(); ++k)
      sums[k] = sums[k] <= lowest ? error(candidates_[k]) : kInfinity;
    return sums;
  }

  [[nodiscard]] std::vector<double> all_errors() const {
    std::vector<double> out;
    for (const float amax : candidates_) out.push_back(error(amax));
    return out;
  }

 private:
  Format format_;
  std::vector<float> centres_, candidates_;
  std::vector<double> counts_;
};

}  // namespace

float amax_by_mse(const Histogram& h, NumBits num_bits, bool is_unsigned, int stride, int start_bin,
                  std::vector<double>* errors) {
  const Format format = num_bits.is_integer() ? Format(IntFormat{num_bits.bits(), is_unsigned, true})
                                              : Format(FloatFormat{num_bits.exponent(), num_bits.mantissa()});
  FQ_CHECK(format.is_integer() || num_bits == NumBits(4, 3), "mse", "{}: use an integer format or (4, 3)",
           to_string(num_bits));
  if (detail::is_empty(h, "mse")) return 0;
  detail::check_search("mse", h.counts.size(), stride, start_bin, 0, h.counts.size() - 1);
  const Search search(h, format, stride, start_bin);
  const auto found = errors != nullptr ? search.all_errors() : search.near_errors();
  if (errors != nullptr) *errors = found;
  return search.candidates()[static_cast<std::size_t>(std::ranges::min_element(found) - found.begin())];
}

float amax_by_percentile(const Histogram& h, double percentile) {
  FQ_CHECK(percentile >= 0 && percentile <= 100, "percentile", "{} is not a percentage: use 0 to 100",
           percentile);
  if (detail::is_empty(h, "percentile")) return 0;
  const auto total = static_cast<double>(h.total());
  double reached = 0;
  // As ModelOpt: adds counts / total in f64, one bin after the other, and returns the left edge of the bin.
  for (std::size_t i = 0; i < h.counts.size(); ++i) {
    reached += static_cast<double>(h.counts[i]) / total;
    if (reached >= percentile / 100) return h.edges[i];
  }
  return h.edges.back();
}

}  // namespace fq
