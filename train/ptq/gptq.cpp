#include <algorithm>
#include <cmath>
#include <numeric>

#include "fakequant/core/detail/check.h"
#include "fakequant/train/ptq/algorithms.h"
#include "fakequant/train/ptq/detail/algorithm_entry.h"
#include "fakequant/train/ptq/detail/chosen_codes.h"
#include "fakequant/train/ptq/detail/matrices.h"

namespace fq::ptq {
namespace {

/// Rounding order of the columns, and U in this order.
struct Plan {
  std::vector<std::size_t> order;
  std::vector<double> factor;
};

Plan make_plan(const Tensor& gram, const GptqOptions& options) {
  const std::int64_t n = gram.dim(0);
  const auto* h = gram.data<float>();
  const auto diagonal = [&](std::size_t i) { return double(h[static_cast<std::int64_t>(i) * (n + 1)]); };
  Plan plan;
  plan.order.resize(static_cast<std::size_t>(n));
  std::iota(plan.order.begin(), plan.order.end(), std::size_t{0});
  double mean = 0;
  for (const std::size_t i : plan.order) mean += diagonal(i) / double(n);
  if (mean == 0) mean = 1;  // all inputs are 0: any code is right
  // Columns with large inputs first: their errors can still be compensated by many columns. Stable, so that
  // equal columns keep their order.
  if (options.act_order)
    std::ranges::stable_sort(plan.order, [&](auto a, auto b) { return diagonal(a) > diagonal(b); });
  std::vector<double> damped;
  damped.reserve(static_cast<std::size_t>(n * n));
  // H in rounding order, with damping on the diagonal: without it, H of dependent inputs has no inverse.
  for (const std::size_t i : plan.order)
    for (const std::size_t j : plan.order)
      damped.push_back(double(h[static_cast<std::int64_t>(i) * n + static_cast<std::int64_t>(j)]) +
                       (i == j ? options.damping * mean : 0));
  plan.factor = inverse_factor(std::move(damped), n);
  return plan;
}

/// Rounds one row; `first` is the index of its first element.
void round_row(const Plan& plan, const WeightGrid& grid, std::size_t first, const float* weight, float* out) {
  const std::size_t n = plan.order.size();
  std::vector<double> rest(n);
  for (std::size_t i = 0; i < n; ++i) rest[i] = double(weight[first + plan.order[i]]);
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t at = first + plan.order[i];
    // The scale of a column is its own, for any order of the columns.
    out[at] = grid.value(at, grid.code(at, static_cast<float>(rest[i])));
    const double* u = plan.factor.data() + i * n;
    const double error = (rest[i] - double(out[at])) / u[i];
    for (std::size_t j = i + 1; j < n; ++j) rest[j] -= error * u[j];
  }
}

Tensor rounded(const WeightedLayer& layer, const WeightGrid& grid, const InputStatistics& statistics,
               const GptqOptions& options) {
  Tensor out = Tensor::empty({layer.rows(), layer.columns()});
  const Tensor weight = layer.weight.tensor();
  const auto* w = weight.data<float>();
  auto* to = out.mutable_data<float>();
  const std::int64_t rows = layer.rows() / layer.groups();
  for (std::int64_t g = 0; g < layer.groups(); ++g) {
    // One factorization per convolution group serves all of its rows: O(columns^3).
    const Plan plan = make_plan(statistics.gram[static_cast<std::size_t>(g)], options);
    for (std::int64_t row = g * rows; row < (g + 1) * rows; ++row)
      round_row(plan, grid, static_cast<std::size_t>(row * layer.columns()), w, to);
  }
  return out;
}

}  // namespace

Report gptq(Module& model, DataLoader& data, const GptqOptions& options) {
  FQ_CHECK(options.damping > 0 && std::isfinite(options.damping), "gptq",
           "damping is {}: use more than 0, for example 0.01", options.damping);
  return choose_codes(
      model, data, {.samples = options.samples, .ranks = options.ranks}, "gptq",
      [&](const WeightedLayer& layer, const WeightGrid& grid, const InputStatistics& statistics) {
        return rounded(layer, grid, statistics, options);
      },
      reason_against_rounding);
}

AlgorithmEntry gptq_entry() {
  return {.options = {{"damping", "perc_damp"}, {"act_order", {}, OptionType::flag}},
          .after = [](Module& model, DataLoader& data, const AlgorithmOptions& given) {
            GptqOptions options{.samples = given.samples(), .ranks = given.ranks()};
            options.damping = given.number("damping", options.damping);
            options.act_order = given.flag("act_order", options.act_order);
            return gptq(model, data, options);
          }};
}

}  // namespace fq::ptq
