#pragma once

/// Weighted sums along one axis: a sparse matrix by which each fibre of a tensor along the axis is
/// multiplied.

#include <cstdint>
#include <vector>

namespace fq::detail {

/// Row j of the result is the sum over k in [begin[j], begin[j + 1]) of weight[k] * element from[k], in that
/// order and in f64; an empty row is 0.
struct AxisMix {
  std::vector<std::int64_t> begin{0};
  std::vector<std::int64_t> from;
  std::vector<double> weight;

  [[nodiscard]] std::int64_t rows() const { return static_cast<std::int64_t>(begin.size()) - 1; }
  void add(std::int64_t element, double by) {
    from.push_back(element);
    weight.push_back(by);
  }
  void end_row() { begin.push_back(static_cast<std::int64_t>(from.size())); }

  /// Row j is element from[j], or nothing where that is negative.
  [[nodiscard]] static AxisMix of(const std::vector<std::int64_t>& elements) {
    AxisMix mix;
    for (const std::int64_t element : elements) {
      if (element >= 0) mix.add(element, 1.0);
      mix.end_row();
    }
    return mix;
  }
  /// The matrix turned over, of an axis of `size` elements: what gradients go back by.
  [[nodiscard]] AxisMix transposed(std::int64_t size) const {
    AxisMix out;
    out.begin.assign(static_cast<std::size_t>(size) + 1, 0);
    for (const std::int64_t element : from) ++out.begin[static_cast<std::size_t>(element) + 1];
    for (std::size_t i = 1; i < out.begin.size(); ++i) out.begin[i] += out.begin[i - 1];
    out.from.resize(from.size());
    out.weight.resize(from.size());
    std::vector<std::int64_t> next(out.begin.begin(), out.begin.end() - 1);
    for (std::int64_t row = 0; row < rows(); ++row)
      for (auto k = begin[static_cast<std::size_t>(row)]; k < begin[static_cast<std::size_t>(row) + 1]; ++k) {
        const auto at = static_cast<std::size_t>(next[static_cast<std::size_t>(from[std::size_t(k)])]++);
        out.from[at] = row;
        out.weight[at] = weight[std::size_t(k)];
      }
    return out;
  }
};

}  // namespace fq::detail
