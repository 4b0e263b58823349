#include "fakequant/train/ptq/detail/flip_roundings.h"

namespace fq::ptq {
namespace {

/// One output channel: the error is d^T gram d.
struct Row {
  const float* gram;
  std::size_t n;
  std::vector<double> d, product;  ///< product = gram d
  std::vector<double> step;        ///< what d gains where the weight is rounded the other way

  /// The weight whose change lowers the error most; n where none does.
  [[nodiscard]] std::size_t best() const {
    std::size_t found = n;
    double least = -1e-9 * error();
    for (std::size_t i = 0; i < n; ++i) {
      const double change = step[i] * (2 * product[i] + step[i] * double(gram[i * n + i]));
      if (!(change < least)) continue;
      least = change;
      found = i;
    }
    return found;
  }

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

Row row_of(const WeightGrid& grid, const Tensor& gram, const float* w, std::size_t first,
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

}  // namespace

void flip_roundings(const WeightedLayer& layer, const WeightGrid& grid, const InputStatistics& statistics,
                    const std::vector<float>& floors, std::vector<bool>& up) {
  const Tensor weight = layer.weight.tensor();
  const auto* w = weight.data<float>();
  for (std::int64_t r = 0; r < layer.rows(); ++r) {
    const auto first = static_cast<std::size_t>(r * layer.columns());
    const Tensor& gram = statistics.gram.at(static_cast<std::size_t>(layer.group_of(r)));
    Row row = row_of(grid, gram, w, first, floors, up);
    for (std::size_t i = row.best(); i < row.n; i = row.best()) {
      row.change(i);
      up[first + i] = !up[first + i];
    }
  }
}

}  // namespace fq::ptq
