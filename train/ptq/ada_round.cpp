#include <algorithm>
#include <cmath>
#include <vector>

#include "fakequant/core/detail/check.h"
#include "fakequant/train/optimizer.h"
#include "fakequant/train/ptq/algorithms.h"
#include "fakequant/train/ptq/detail/algorithm_entry.h"
#include "fakequant/train/ptq/detail/chosen_codes.h"
#include "fakequant/train/ptq/detail/input_statistics.h"
#include "fakequant/train/ptq/detail/matrices.h"
#include "fakequant/train/ptq/detail/weight_grid.h"

namespace fq::ptq {
namespace {

/// Learned rounding: for each weight a share h in 0 .. 1 of the step from its lower code to the next.
class SoftRounding {
 public:
  /// Starts with the h that represents the weight itself. The arguments must outlive this object.
  SoftRounding(const WeightedLayer& layer, const WeightGrid& grid, const InputStatistics& statistics);

  /// Returns V, [rows, columns]: h is the sigmoid of V, stretched to [-0.1, 1.1] and clamped to [0, 1].
  [[nodiscard]] const Variable& v() const noexcept { return v_; }
  /// Computes h from V. A clamped h has no gradient, so it is fixed and its V is not read again. Returns the
  /// number of weights left to learn.
  std::size_t relax();
  /// Returns the gradient by V of the loss: the squared error of the layer's output, scaled so that the
  /// nearest codes of a row give 1 per weight, plus `regularization` times the sum of 1 - |2h - 1|^beta.
  /// Products with E[x x^T] neglect 1e-4 of the input's power.
  [[nodiscard]] Tensor gradient(float regularization, float beta) const;
  /// Returns the chosen weights: rounded up if h >= 0.5, then improved by `flip_roundings`.
  [[nodiscard]] Tensor chosen() const;

 private:
  [[nodiscard]] Tensor products() const;

  const WeightedLayer& layer_;
  const WeightGrid& grid_;
  const InputStatistics& statistics_;
  std::vector<GramProduct> grams_;      ///< one per group
  std::vector<float> floors_, lowest_;  ///< lower codes, and their values minus the weights
  std::vector<float> h_, slopes_;       ///< h, and dh/dV
  std::vector<double> row_factors_;
  std::vector<std::size_t> open_;  ///< weights whose h is not clamped
  Variable v_;
};

/// One output channel. Its error is d^T gram d.
struct Row {
  const float* gram;
  std::size_t n;
  std::vector<double> d, product;  ///< product = gram d
  std::vector<double> step;        ///< change of d if the weight is rounded the other way

  /// Returns the weight whose flip lowers the error most; n if no flip does.
  [[nodiscard]] std::size_t best() const {
    std::size_t found = n;
    // The gain of a flip must exceed the rounding errors of f64. Otherwise two flips could alternate forever.
    double least = -1e-9 * error();
    for (std::size_t i = 0; i < n; ++i) {
      // (d + s e_i)^T G (d + s e_i) - d^T G d = s (2 (G d)_i + s G_ii), for symmetric G. A flip costs O(n).
      const double change = step[i] * (2 * product[i] + step[i] * double(gram[i * n + i]));
      if (!(change < least)) continue;
      least = change;
      found = i;
    }
    return found;
  }

  // Updates d and G d after flip i; a second flip of i would return.
  void change(std::size_t i) {
    d[i] += step[i];
    for (std::size_t k = 0; k < n; ++k) product[k] += step[i] * double(gram[i * n + k]);
    step[i] = -step[i];
  }

 private:
  [[nodiscard]] double error() const {
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += d[i] * product[i];
    return sum;
  }
};

Row make_row(const WeightGrid& grid, const Tensor& gram, const float* w, std::size_t first,
             const std::vector<float>& floors, const std::vector<bool>& up) {
  const auto n = static_cast<std::size_t>(gram.dim(0));
  Row row{gram.data<float>(), n, std::vector<double>(n), std::vector<double>(n, 0.0), std::vector<double>(n)};
  for (std::size_t k = 0; k < n; ++k) {
    const std::size_t i = first + k;
    row.d[k] = double(grid.value(i, floors[i] + (up[i] ? 1.0f : 0.0f))) - double(w[i]);
    row.step[k] = double(up[i] ? -grid.scales[i] : grid.scales[i]);
    for (std::size_t j = 0; j < n; ++j) row.product[j] += row.d[k] * double(row.gram[k * n + j]);
  }
  return row;
}

// Stretch parameters of AdaRound, zeta = 1.1 and gamma = -0.1: zeta - gamma, and gamma.
constexpr float kStretch = 1.2f, kShift = -0.1f;
// Share of the input's power that the factors of `gram` may lose (see GramProduct).
constexpr double kNeglectedPower = 1e-4;

float sigmoid(float v) { return 1.0f / (1.0f + std::exp(-v)); }
/// Returns the V with h(V) = share, 0 <= share < 1.
float inverse_rectified(float share) {
  const float s = (share - kShift) / kStretch;
  return std::log(s / (1.0f - s));
}

/// Returns d/dh of 1 - |2h - 1|^beta.
float regularization_slope(float h, float beta) {
  const float away = 2.0f * h - 1.0f;
  return -2.0f * beta * std::copysign(std::pow(std::abs(away), beta - 1.0f), away);
}

/// Rounds single weights the other way while that lowers the squared error of the layer's output. Each row
/// first flips the weight with the largest gain. At the end no single flip helps. `floors` are the lower
/// codes; `up` says which weights take the next code, and is updated.
void flip_roundings(const WeightedLayer& layer, const WeightGrid& grid, const InputStatistics& statistics,
                    const std::vector<float>& floors, std::vector<bool>& up) {
  const Tensor weight = layer.weight.tensor();
  const auto* w = weight.data<float>();
  for (std::int64_t r = 0; r < layer.rows(); ++r) {
    const auto first = static_cast<std::size_t>(r * layer.columns());
    const Tensor& gram = statistics.gram.at(static_cast<std::size_t>(layer.row_group(r)));
    Row row = make_row(grid, gram, w, first, floors, up);
    for (std::size_t i = row.best(); i < row.n; i = row.best()) {
      row.change(i);
      up[first + i] = !up[first + i];
    }
  }
}

SoftRounding::SoftRounding(const WeightedLayer& layer, const WeightGrid& grid,
                           const InputStatistics& statistics)
    : layer_(layer),
      grid_(grid),
      statistics_(statistics),
      floors_(grid.scales.size(), 0.0f),
      lowest_(grid.scales.size()),
      h_(grid.scales.size(), 0.0f),
      slopes_(grid.scales.size(), 0.0f),
      row_factors_(row_errors(layer, statistics, grid.rounding_errors(layer.weight.tensor()))) {
  for (const Tensor& gram : statistics.gram) grams_.emplace_back(gram, kNeglectedPower);
  // Scales errors so that the nearest codes of a row have an error of 1 per weight.
  for (double& factor : row_factors_) factor = factor > 0 ? double(layer.columns()) / factor : 0;
  Tensor start = Tensor::zeros({layer.rows(), layer.columns()});
  auto* v = start.mutable_data<float>();
  const Tensor weight = layer.weight.tensor();
  const auto* w = weight.data<float>();
  for (std::size_t i = 0; i < floors_.size(); ++i) {
    lowest_[i] = -w[i];
    // A range of zeros has only code 0, so that there is nothing to learn.
    if (grid.scales[i] == 0.0f) continue;
    const float position = std::clamp(w[i] / grid.scales[i], grid.lower, grid.upper);
    // At the upper bound, the lower code is upper - 1 and the share is 1.
    floors_[i] = std::min(std::floor(position), grid.upper - 1);
    lowest_[i] = grid.value(i, floors_[i]) - w[i];
    // 0.999 keeps h below the clamp: a weight at h = 1 would be fixed before it has learned.
    v[i] = inverse_rectified(std::min(position - floors_[i], 0.999f));
    open_.push_back(i);
  }
  v_ = Variable(start, true);
}

std::size_t SoftRounding::relax() {
  const auto* v = v_.tensor().data<float>();
  std::erase_if(open_, [&](std::size_t i) {
    const float s = sigmoid(v[i]), h = s * kStretch + kShift;
    // h at the clamp has slope 0 and never moves again.
    const bool cut = h <= 0.0f || h >= 1.0f;
    h_[i] = std::clamp(h, 0.0f, 1.0f);
    slopes_[i] = cut ? 0.0f : kStretch * s * (1.0f - s);
    return cut;
  });
  return open_.size();
}

Tensor SoftRounding::products() const {
  Tensor off = Tensor::empty(v_.shape()), out = Tensor::empty(v_.shape());
  auto* d = off.mutable_data<float>();
  // d = w_soft - w = (floor value - w) + h * scale
  for (std::size_t i = 0; i < h_.size(); ++i) d[i] = lowest_[i] + h_[i] * grid_.scales[i];
  const std::int64_t rows = layer_.rows() / layer_.groups();
  for (std::int64_t g = 0; g < layer_.groups(); ++g) {
    const GramProduct& product = grams_[static_cast<std::size_t>(g)];
    out.slice(g * rows, (g + 1) * rows).copy_from(product(off.slice(g * rows, (g + 1) * rows)));
  }
  return out;
}

Tensor SoftRounding::gradient(float regularization, float beta) const {
  const Tensor product = products();
  const auto* p = product.data<float>();
  Tensor out = Tensor::zeros(product.shape());
  auto* g = out.mutable_data<float>();
  const auto columns = static_cast<std::size_t>(layer_.columns());
  for (const std::size_t i : open_) {
    // Derivative of d^T G d by h, times the row's factor and the slope of h by V.
    float slope = 2.0f * p[i] * grid_.scales[i] * static_cast<float>(row_factors_[i / columns]);
    if (regularization > 0) slope += regularization * regularization_slope(h_[i], beta);
    g[i] = slope * slopes_[i];
  }
  return out;
}

Tensor SoftRounding::chosen() const {
  std::vector<bool> up;
  for (const float h : h_) up.push_back(h >= 0.5f);
  // Learning treats all weights at once; the flips then correct single ones with the exact error.
  flip_roundings(layer_, grid_, statistics_, floors_, up);
  Tensor out = Tensor::empty(v_.shape());
  auto* to = out.mutable_data<float>();
  for (std::size_t i = 0; i < up.size(); ++i) to[i] = grid_.value(i, floors_[i] + (up[i] ? 1.0f : 0.0f));
  return out;
}

Tensor learned(const WeightedLayer& layer, const WeightGrid& grid, const InputStatistics& statistics,
               const AdaRoundOptions& options) {
  SoftRounding rounding(layer, grid, statistics);
  Variable v = rounding.v();
  Adam adam({{"v", v}}, {.learning_rate = options.learning_rate});
  // During the warm-up only the error counts, so that h can move freely.
  const int warmup = static_cast<int>(options.warmup * options.iterations);
  for (int i = 0; rounding.relax() > 0 && i < options.iterations; ++i) {
    const double done = double(i - warmup) / std::max(1, options.iterations - warmup);
    // With a large beta the term is flat except near 0 and 1, so that h moves freely. A small beta pushes
    // every h to 0 or 1.
    const double beta = options.beta_start + (options.beta_end - options.beta_start) * done;
    v.set_grad(rounding.gradient(i < warmup ? 0.0f : static_cast<float>(options.regularization),
                                 static_cast<float>(beta)));
    adam.step();
  }
  return rounding.chosen();
}

}  // namespace

Report ada_round(Module& model, DataLoader& data, const AdaRoundOptions& options) {
  FQ_CHECK(options.iterations > 0, "ada_round", "iterations is {}: use 1 or more", options.iterations);
  FQ_CHECK(options.warmup >= 0 && options.warmup <= 1, "ada_round", "warmup is {}: use 0 to 1",
           options.warmup);
  FQ_CHECK(options.regularization >= 0 && options.beta_start >= 1 && options.beta_end >= 1, "ada_round",
           "regularization is {} (use 0 or more), beta {} to {} (use 1 or more)", options.regularization,
           options.beta_start, options.beta_end);
  return choose_codes(
      model, data, {.samples = options.samples, .ranks = options.ranks}, "ada_round",
      [&](const WeightedLayer& layer, const WeightGrid& grid, const InputStatistics& statistics) {
        return learned(layer, grid, statistics, options);
      });
}

AlgorithmEntry adaround_entry() {
  return {
      .options = {{"iterations", {}, OptionType::count}, {"learning_rate"}, {"regularization"}, {"warmup"}},
      .after = [](Module& model, DataLoader& data, const AlgorithmOptions& given) {
        AdaRoundOptions options{.samples = given.samples(), .ranks = given.ranks()};
        options.iterations = given.count("iterations", options.iterations);
        options.learning_rate = given.number("learning_rate", options.learning_rate);
        options.regularization = given.number("regularization", options.regularization);
        options.warmup = given.number("warmup", options.warmup);
        return ada_round(model, data, options);
      }};
}

}  // namespace fq::ptq
