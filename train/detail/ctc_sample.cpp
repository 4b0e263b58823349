#include "fakequant/train/detail/ctc_sample.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fq::detail {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

double log_add(double a, double b) {
  const double large = std::max(a, b);
  return large == kNever ? kNever : large + std::log1p(std::exp(std::min(a, b) - large));
}

/// States of a sample: labels with a blank before, between and behind them, at each place.
class Trellis {
 public:
  Trellis(const CtcSample& sample, const std::vector<std::int64_t>& labels, std::int64_t blank)
      : sample_(sample), states_(2 * labels.size() + 1, blank) {
    for (std::size_t i = 0; i < labels.size(); ++i) states_[2 * i + 1] = labels[i];
    for (std::int64_t t = 0; t < sample.places; ++t) norms_.push_back(log_sum(t));
    fill_forward();
  }

  [[nodiscard]] double loss() const {
    if (sample_.places == 0) return states_.size() == 1 ? 0 : -kNever;
    const double* last = forward_.data() + static_cast<std::size_t>(sample_.places - 1) * states_.size();
    const double all =
        states_.size() == 1 ? last[0] : log_add(last[states_.size() - 1], last[states_.size() - 2]);
    return -all;
  }

  void add_gradient(double weight, double* gradient) const {
    const double all = loss();
    std::vector<double> behind = last_column(), share(static_cast<std::size_t>(sample_.classes));
    for (std::int64_t t = sample_.places - 1; t >= 0; --t) {
      std::ranges::fill(share, kNever);
      for (std::size_t s = 0; s < states_.size(); ++s) {
        double& sum = share[static_cast<std::size_t>(states_[s])];
        sum = log_add(sum, forward(t, s) + behind[s]);
      }
      for (std::int64_t c = 0; c < sample_.classes; ++c)
        gradient[c * sample_.stride + t] +=
            weight * (std::exp(log_p(c, t)) - std::exp(share[static_cast<std::size_t>(c)] + all));
      if (t > 0) behind = column_before(behind, t);
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
  /// Whether a label may follow the one before it without a blank between them.
  [[nodiscard]] bool skips(std::size_t s) const {
    return s >= 2 && s % 2 == 1 && states_[s] != states_[s - 2];
  }

  void fill_forward() {
    forward_.assign(static_cast<std::size_t>(sample_.places) * states_.size(), kNever);
    for (std::int64_t t = 0; t < sample_.places; ++t)
      for (std::size_t s = 0; s < states_.size(); ++s)
        forward_[static_cast<std::size_t>(t) * states_.size() + s] = log_p(states_[s], t) + arriving(t, s);
  }
  [[nodiscard]] double arriving(std::int64_t t, std::size_t s) const {
    if (t == 0) return s < 2 ? 0 : kNever;
    double sum = forward(t - 1, s);
    if (s >= 1) sum = log_add(sum, forward(t - 1, s - 1));
    if (skips(s)) sum = log_add(sum, forward(t - 1, s - 2));
    return sum;
  }
  /// What is behind a state at the last place: 0 where the sequence may end.
  [[nodiscard]] std::vector<double> last_column() const {
    std::vector<double> out(states_.size(), kNever);
    for (std::size_t s = out.size() - std::min<std::size_t>(2, out.size()); s < out.size(); ++s) out[s] = 0;
    return out;
  }
  /// What is behind each state at place t - 1, of what is behind those at t.
  [[nodiscard]] std::vector<double> column_before(const std::vector<double>& behind, std::int64_t t) const {
    std::vector<double> out(states_.size(), kNever);
    for (std::size_t s = 0; s < states_.size(); ++s) {
      const double here = behind[s] + log_p(states_[s], t);
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

}  // namespace

double ctc_loss(const CtcSample& sample, const std::vector<std::int64_t>& labels, std::int64_t blank) {
  return Trellis(sample, labels, blank).loss();
}

double ctc_loss(const CtcSample& sample, const std::vector<std::int64_t>& labels, std::int64_t blank,
                double weight, double* gradient) {
  const Trellis trellis(sample, labels, blank);
  trellis.add_gradient(weight, gradient);
  return trellis.loss();
}

}  // namespace fq::detail
