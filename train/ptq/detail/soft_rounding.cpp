#include "fakequant/train/ptq/detail/soft_rounding.h"

#include <algorithm>
#include <cmath>

namespace fq::ptq {
namespace {

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

}  // namespace

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

}  // namespace fq::ptq
