#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/threads.h"
#include "fakequant/core/tape.h"
#include "fakequant/train/losses.h"

namespace fq::detail {
namespace {

/// Outputs of one sample, [C, L].
struct CtcSample {
  const double* outputs;
  std::int64_t classes, stride;  ///< distance of the values of two classes
  std::int64_t positions;        ///< number of positions used
};

constexpr double kNever = -std::numeric_limits<double>::infinity();

// Returns log(exp(a) + exp(b)) without overflow; -infinity is probability 0.
double log_add(double a, double b) {
  const double large = std::max(a, b);
  return large == kNever ? kNever : large + std::log1p(std::exp(std::min(a, b) - large));
}

/// States of a sample at each position: its labels with a blank before, between and after them.
class Trellis {
 public:
  Trellis(const CtcSample& sample, const std::vector<std::int64_t>& labels, std::int64_t blank)
      : sample_(sample), states_(2 * labels.size() + 1, blank) {
    for (std::size_t i = 0; i < labels.size(); ++i) states_[2 * i + 1] = labels[i];
    for (std::int64_t t = 0; t < sample.positions; ++t) norms_.push_back(log_sum(t));
    fill_forward();
  }

  [[nodiscard]] double loss() const {
    if (sample_.positions == 0) return states_.size() == 1 ? 0 : -kNever;
    const double* last = forward_.data() + static_cast<std::size_t>(sample_.positions - 1) * states_.size();
    // A path may end in the last label or in the blank after it.
    const double all =
        states_.size() == 1 ? last[0] : log_add(last[states_.size() - 1], last[states_.size() - 2]);
    return -all;
  }

  void add_gradient(double weight, double* gradient) const {
    const double all = loss();
    // beta: backward variable of position t, [states]. The column of t - 1 replaces it. The forward variables
    // (alpha) of all positions are stored.
    std::vector<double> beta = last_column(), share(static_cast<std::size_t>(sample_.classes));
    for (std::int64_t t = sample_.positions - 1; t >= 0; --t) {
      std::ranges::fill(share, kNever);
      for (std::size_t s = 0; s < states_.size(); ++s) {
        double& sum = share[static_cast<std::size_t>(states_[s])];
        sum = log_add(sum, forward(t, s) + beta[s]);
      }
      for (std::int64_t c = 0; c < sample_.classes; ++c)
        gradient[c * sample_.stride + t] +=
            // Gradient by the logits: softmax minus the posterior probability of the class at t (Graves et
            // al. 2006, equation 16). `all` is -log P, so that + divides by P.
            weight * (std::exp(log_p(c, t)) - std::exp(share[static_cast<std::size_t>(c)] + all));
      if (t > 0) beta = previous_column(beta, t);
    }
  }

 private:
  [[nodiscard]] double output(std::int64_t c, std::int64_t t) const {
    return sample_.outputs[c * sample_.stride + t];
  }
  [[nodiscard]] double log_p(std::int64_t c, std::int64_t t) const {
    return output(c, t) - norms_[static_cast<std::size_t>(t)];
  }
  [[nodiscard]] double forward(std::int64_t t, std::size_t s) const {
    return forward_[static_cast<std::size_t>(t) * states_.size() + s];
  }
  [[nodiscard]] double log_sum(std::int64_t t) const {
    double largest = kNever, sum = 0;
    for (std::int64_t c = 0; c < sample_.classes; ++c) largest = std::max(largest, output(c, t));
    for (std::int64_t c = 0; c < sample_.classes; ++c) sum += std::exp(output(c, t) - largest);
    return largest + std::log(sum);
  }
  /// Returns whether a label may follow the label before it without a blank between them.
  [[nodiscard]] bool skips(std::size_t s) const {
    return s >= 2 && s % 2 == 1 && states_[s] != states_[s - 2];
  }

  void fill_forward() {
    forward_.assign(static_cast<std::size_t>(sample_.positions) * states_.size(), kNever);
    for (std::int64_t t = 0; t < sample_.positions; ++t)
      for (std::size_t s = 0; s < states_.size(); ++s)
        forward_[static_cast<std::size_t>(t) * states_.size() + s] = log_p(states_[s], t) + arriving(t, s);
  }
  [[nodiscard]] double arriving(std::int64_t t, std::size_t s) const {
    // A path begins with the first blank or the first label.
    if (t == 0) return s < 2 ? 0 : kNever;
    double sum = forward(t - 1, s);
    if (s >= 1) sum = log_add(sum, forward(t - 1, s - 1));
    if (skips(s)) sum = log_add(sum, forward(t - 1, s - 2));
    return sum;
  }
  /// Returns the log probabilities after the last position: 0 for final states.
  [[nodiscard]] std::vector<double> last_column() const {
    std::vector<double> out(states_.size(), kNever);
    for (std::size_t s = out.size() - std::min<std::size_t>(2, out.size()); s < out.size(); ++s) out[s] = 0;
    return out;
  }
  /// Returns the log probabilities of the positions after t - 1, by state at t - 1, from those after t, by
  /// state at t.
  [[nodiscard]] std::vector<double> previous_column(const std::vector<double>& beta, std::int64_t t) const {
    std::vector<double> out(states_.size(), kNever);
    for (std::size_t s = 0; s < states_.size(); ++s) {
      const double here = beta[s] + log_p(states_[s], t);
      out[s] = log_add(out[s], here);
      if (s >= 1) out[s - 1] = log_add(out[s - 1], here);
      if (skips(s)) out[s - 2] = log_add(out[s - 2], here);
    }
    return out;
  }

  const CtcSample& sample_;
  std::vector<std::int64_t> states_;
  std::vector<double> norms_, forward_;
};

/// Returns -log P(labels), which is infinite if the labels do not fit into the positions.
double ctc_loss(const CtcSample& sample, const std::vector<std::int64_t>& labels, std::int64_t blank) {
  return Trellis(sample, labels, blank).loss();
}

/// Returns the same loss and adds its gradient with respect to the outputs, times `weight`, to `gradient`,
/// which has the layout of the outputs. The gradient is NaN if the loss is infinite.
double ctc_loss(const CtcSample& sample, const std::vector<std::int64_t>& labels, std::int64_t blank,
                double weight, double* gradient) {
  const Trellis trellis(sample, labels, blank);
  trellis.add_gradient(weight, gradient);
  return trellis.loss();
}

}  // namespace
}  // namespace fq::detail

namespace fq {
namespace {

using Row = std::vector<std::int64_t>;

constexpr std::string_view kCtc = "ctc";

std::vector<double> doubles(const Tensor& tensor) {
  return tensor.to(Device::cpu()).to(Layout::row_major).to(DType::f64).to_vector<double>();
}

/// Returns the number of positions used of each sample.
Row used_lengths(const Shape& outputs, const Tensor& given) {
  if (!given.defined()) return Row(static_cast<std::size_t>(outputs[0]), outputs[2]);
  FQ_CHECK(given.dtype() == DType::i64 && given.shape() == Shape{outputs[0]}, kCtc,
           "the lengths are {}: use i64 [{}]", given.describe(), outputs[0]);
  Row out = given.to(Device::cpu()).to_vector<std::int64_t>();
  for (const auto length : out)
    FQ_CHECK(length >= 0 && length <= outputs[2], kCtc, "a length is {}: use 0 to {}", length, outputs[2]);
  return out;
}

struct Found {
  double loss = 0;
  std::vector<double> gradient;  ///< gradient of the outputs, in their order
};

/// Returns the loss, and its gradient if `gradient` is set.
Found compute(const Tensor& outputs, const std::vector<Row>& labels, const Row& lengths,
              const losses::CtcOptions& options, bool gradient) {
  const Shape& shape = outputs.shape();
  const std::vector<double> values = doubles(outputs);
  const auto size = static_cast<std::size_t>(shape[1] * shape[2]);
  std::vector<double> each(labels.size());
  Found found{0, std::vector<double>(gradient ? values.size() : 0)};
#pragma omp parallel for schedule(static) num_threads(detail::threads())
  for (std::size_t n = 0; n < labels.size(); ++n) {
    const detail::CtcSample sample{values.data() + n * size, shape[1], shape[2], lengths[n]};
    const double weight = 1 / static_cast<double>(labels.size() * std::max<std::size_t>(1, labels[n].size()));
    // The loss first: with zero_infinity, an impossible sample must not get the gradient NaN.
    double loss = detail::ctc_loss(sample, labels[n], options.blank);
    if (options.zero_infinity && std::isinf(loss))
      loss = 0;
    else if (gradient)
      (void)detail::ctc_loss(sample, labels[n], options.blank, weight, found.gradient.data() + n * size);
    each[n] = loss * weight;
  }
  // In the order of the samples, for any number of threads.
  found.loss = std::accumulate(each.begin(), each.end(), 0.0);
  return found;
}

std::int64_t largest(const std::vector<double>& values, std::size_t begin, std::int64_t classes,
                     std::int64_t stride) {
  std::int64_t best = 0;
  const auto at = [&](std::int64_t c) { return values[begin + static_cast<std::size_t>(c * stride)]; };
  for (std::int64_t c = 1; c < classes; ++c)
    if (at(c) > at(best)) best = c;
  return best;
}

}  // namespace

Variable losses::ctc(const Variable& outputs, const Tensor& labels, const CtcOptions& options) {
  FQ_CHECK(outputs.defined() && outputs.rank() == 3 && outputs.dim(1) > 1, kCtc,
           "the outputs are {}: use [N, C, L], two classes or more at each of L positions",
           outputs.defined() ? to_string(outputs.shape()) : "undefined");
  const Variable y = outputs.as_float();
  const Tensor values = y.tensor();
  FQ_CHECK(options.blank >= 0 && options.blank < values.dim(1), kCtc, "blank is {} of {} classes",
           options.blank, values.dim(1));
  const auto rows = label_rows(labels, values.dim(1), options.blank, options.padding);
  FQ_CHECK(static_cast<std::int64_t>(rows.size()) == values.dim(0), kCtc, "the outputs are {}, the labels {}",
           values.describe(), labels.describe());
  const bool gradient = detail::needs_grad({y});
  Found found = compute(values, rows, used_lengths(values.shape(), options.lengths), options, gradient);
  const auto backward = [shape = values.shape(), dtype = values.dtype(), device = values.device(),
                         slopes = std::move(found.gradient)](const Tensor& dy) {
    // The gradient was computed with the loss; the backward pass only scales it.
    std::vector<double> dx = slopes;
    const double factor = dy.to(Device::cpu()).to(DType::f64).to_vector<double>().front();
    for (double& value : dx) value *= factor;
    return std::vector<Tensor>{Tensor::from(dx, shape).to(dtype).to(device)};
  };
  const Tensor loss = Tensor::full({}, found.loss, values.dtype(), values.device());
  return detail::record(kCtc, loss, {y}, backward);
}

std::vector<Row> label_rows(const Tensor& labels, std::int64_t classes, std::int64_t blank,
                            std::optional<std::int64_t> padding) {
  FQ_CHECK(labels.defined() && !is_floating(labels.dtype()) && (labels.rank() == 1 || labels.rank() == 2),
           kCtc, "the labels are {}: use integers [N, S]", labels.describe());
  const auto all = labels.to(Device::cpu()).to(DType::i64).to_vector<std::int64_t>();
  const std::size_t width = labels.rank() == 2 ? static_cast<std::size_t>(labels.dim(1)) : 1;
  std::vector<Row> rows(static_cast<std::size_t>(labels.dim(0)));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::int64_t label = all[i];
    if (label < 0 || label == blank || label == padding) continue;
    Row& row = rows[i / width];
    FQ_CHECK(label < classes, kCtc, "label {} of sample {} is not 0 to {}", label, i / width, classes - 1);
    // All labels so far are at the front of the row, so that there is no padding between them.
    FQ_CHECK(row.size() == i % width, kCtc,
             "sample {} has the label {} after padding: blanks ({}), negative numbers{} may only fill the "
             "end of a row",
             i / width, label, blank, padding ? fmt::format(" and {}", *padding) : "");
    row.push_back(label);
  }
  return rows;
}

std::int64_t ctc_positions(const Row& labels) {
  std::int64_t positions = static_cast<std::int64_t>(labels.size());
  for (std::size_t i = 1; i < labels.size(); ++i) positions += labels[i] == labels[i - 1] ? 1 : 0;
  return positions;
}

Tensor ctc_decode(const Tensor& outputs, std::int64_t blank) {
  FQ_CHECK(outputs.defined() && outputs.rank() == 3, "ctc_decode", "the outputs are {}: use [N, C, L]",
           outputs.describe());
  const std::int64_t classes = outputs.dim(1), positions = outputs.dim(2);
  const std::vector<double> values = doubles(outputs);
  Row read(static_cast<std::size_t>(outputs.dim(0) * positions), -1);
  for (std::int64_t n = 0; n < outputs.dim(0); ++n) {
    auto next = read.begin() + n * positions;
    std::int64_t before = blank;
    for (std::int64_t t = 0; t < positions; ++t) {
      const auto c =
          largest(values, static_cast<std::size_t>(n * classes * positions + t), classes, positions);
      // A repeated class is one label unless a blank is between.
      if (c != before && c != blank) *next++ = c;
      before = c;
    }
  }
  return Tensor::from(read, {outputs.dim(0), positions});
}

std::int64_t edit_distance(const Row& a, const Row& b) {
  Row row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    // One row of the Levenshtein table is enough; `diagonal` is the value up and left of the entry.
    std::int64_t diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::int64_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j + 1] + 1, row[j] + 1, replaced});
    }
  }
  return row.back();
}

}  // namespace fq
