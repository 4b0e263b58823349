#pragma once

/// Argument structures of kernels, for host and device.

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "fakequant/core/accumulator.h"
#include "fakequant/core/numerics/detail/philox.h"
#include "fakequant/core/numerics/detail/recurrent_arrays.h"
#include "fakequant/core/numerics/number_formats.h"
#include "fakequant/core/random.h"
#include "fakequant/core/tensor.h"

namespace fq::detail {

/// Copy of `runs` runs of `count` bits: run r from bit source + r * step_x to bit target + r * step_y.
struct StridedBits {
  std::int64_t runs, count, source, step_x, target, step_y;

  [[nodiscard]] bool whole_bytes() const { return (source | target | step_x | step_y | count) % 8 == 0; }
};

/// Normalization of rows: layer norm, or RMS norm of `x` alone.
struct RowNormCall {
  const Tensor& x;  ///< f32, row-major
  std::int64_t length;
  const Tensor &gamma, &beta;  ///< f32 [length]; undefined for 1 and 0
  double eps;
  bool rms;
  const Accumulator* sums;  ///< null, or product sums that are added to x
  Tensor* total;            ///< with `sums`: receives their values + x
  Tensor *mean, *inverse;   ///< f32 [rows] of layer norm; RMS norm writes its roots to `inverse`
  Tensor* y;                ///< receives the values, or is null
  QuantizedTensor* codes;   ///< receives codes and mask, if y is null; the length is then a multiple of 8
  const std::string& nan_text;
};

/// A copy between two addresses of one device.
struct RunCopy {
  StridedBits bits;
  const void* in;
  void* out;
};

/// Weighted sums along one axis: a sparse matrix that multiplies each fibre of a tensor along the axis.
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

  /// Returns the mix whose row j is element from[j], or empty if from[j] is negative.
  [[nodiscard]] static AxisMix of(const std::vector<std::int64_t>& elements) {
    AxisMix mix;
    for (const std::int64_t element : elements) {
      if (element >= 0) mix.add(element, 1.0);
      mix.end_row();
    }
    return mix;
  }
  /// Returns the transposed matrix, for an axis of `size` elements. Gradients use it.
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

/// Choice of the elements that a dropout keeps. Blocks of four elements share a counter. Bits of a block
/// index above 32 are added above the operator count, which stays below 2^24.
struct DropoutBlocks {
  std::uint64_t threshold, seed, step;
  std::uint32_t op;

  DropoutBlocks(double p, const RandomStream& s)
      : threshold(static_cast<std::uint64_t>(std::nearbyint(p * 0x1p32))),
        seed(s.seed),
        step(s.step),
        op(s.op) {}

  /// Sets four flags to 1 for kept elements. Elements are counted in logical row-major order.
  FQ_HD void keep(std::int64_t block, std::uint8_t* four) const {
    const auto words =
        philox_words({static_cast<std::uint32_t>(block), op ^ (static_cast<std::uint32_t>(block >> 32) << 24),
                      static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(step >> 32)},
                     {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
    for (std::size_t i = 0; i < 4; ++i) four[i] = words[i] >= threshold ? 1 : 0;
  }
};

template <class T>
struct Kept {
  T scale;
  FQ_HD T operator()(T x, std::uint8_t keep) const { return keep != 0 ? x * scale : T{0}; }
};

/// Gradients of a normalization of rows. Unless they are undefined, `mask` (u1) clears elements of dy first,
/// and dx includes `sum`, which it may overwrite.
struct NormGradient {
  Tensor dy, mask, sum;
  Tensor dx;
};

}  // namespace fq::detail

namespace fq {

/// Use of class labels in cross entropy.
struct LabelRule {
  double smoothing = 0;
  std::optional<std::int64_t> ignored = {};  ///< rows with this label are not counted
  /// f64 [C + 1] on the device of the labels: the weight of each class, then their sum. Undefined: all
  /// weights are 1.
  Tensor weights = {};
};

namespace detail {

/// Test for ignored labels in kernels.
struct IgnoredLabel {
  bool any;
  std::int64_t label;

  explicit IgnoredLabel(const LabelRule& rule)
      : any(rule.ignored.has_value()), label(rule.ignored.value_or(0)) {}
  [[nodiscard]] FQ_HD bool counts(std::int64_t each) const { return !any || each != label; }
};

}  // namespace detail
}  // namespace fq

namespace fq::detail {

/// The values that were quantized: f32 numbers, or sums.
using RangedValues = std::variant<Tensor, Accumulator>;

/// Returns the values as floats in this layout.
[[nodiscard]] inline Tensor to_floats(const RangedValues& x, Layout layout) {
  const auto* sums = std::get_if<Accumulator>(&x);
  return (sums != nullptr ? to_float(*sums) : std::get<Tensor>(x)).to(layout);
}

/// The tensors of one step of a recurrent layer, all f32 or all f64, row-major. recurrent_arrays.h describes
/// shapes and meaning.
struct RecurrentStep {
  RecurrentCell kind;
  Tensor gates, of_state;
  Tensor bias, state_bias;
  Tensor before, cell, state;

  template <class T>
  [[nodiscard]] RecurrentArrays<T> arrays() {
    const auto in = [](const Tensor& x) { return x.defined() ? static_cast<const T*>(x.raw()) : nullptr; };
    const auto out = [](Tensor& x) { return x.defined() ? static_cast<T*>(x.mutable_raw()) : nullptr; };
    return {state.dim(1),   out(gates), out(of_state), in(bias),
            in(state_bias), in(before), out(cell),     out(state)};
  }
};

struct RecurrentStepBackward {
  RecurrentCell kind;
  Tensor gates, of_state, before, cell;
  Tensor dy, dstate;
  Tensor carried, dgates, dof_state;

  template <class T>
  [[nodiscard]] RecurrentGradients<T> arrays() {
    const auto in = [](const Tensor& x) { return x.defined() ? static_cast<const T*>(x.raw()) : nullptr; };
    const auto out = [](Tensor& x) { return x.defined() ? static_cast<T*>(x.mutable_raw()) : nullptr; };
    return {dy.dim(1), in(gates),  in(of_state), in(before),  in(cell),
            in(dy),    in(dstate), out(carried), out(dgates), out(dof_state)};
  }
};

struct PackedWeight;

/// A weight in the form of a device's kernels, for engines that quantize the rows of x at run time.
struct EngineOperand {
  std::shared_ptr<const PackedWeight> packed;  ///< of the host; null on CUDA, which uses the members below
  Tensor codes;                                ///< i8 [outputs, columns]
  Tensor scales;                               ///< f32 [outputs, blocks]
  Tensor zero_terms;      ///< XNNPACK: f32 [outputs], added per unit of the zero point of x
  bool in_lanes = false;  ///< ggml: eight lanes per block, the order of plain buffers
};

}  // namespace fq::detail
