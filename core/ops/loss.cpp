#include "fakequant/core/ops/loss.h"

#include <algorithm>
#include <numeric>

#include "fakequant/core/backend/transfer.h"
#include "fakequant/core/detail/moves.h"
#include "fakequant/core/ops/detail/operator.h"
#include "fakequant/core/profile.h"

namespace fq::ops {
namespace {

// Saves y, not x: the gradients of softmax, y (dy - sum dy y), and of its logarithm, dy - exp(y) sum dy, are
// functions of the output.
Variable softmax_operator(std::string_view op, const Variable& input, int axis, bool logarithm) {
  const auto x = detail::floats(input, op);
  const int at = normalize_axis(axis, x.tensor.rank(), op);
  const AxisView view = axis_view(x.tensor.shape(), at);
  const Tensor rows = x.tensor.to(Layout::row_major);
  Tensor y = detail::empty_like(rows);
  detail::run(y.device(), &detail::Kernels::softmax, rows, view, logarithm, y);
  const auto backward = [saved = detail::Saved(y), view, logarithm](const Tensor& dy) {
    Tensor dx = detail::empty_like(dy);
    detail::run(dx.device(), &detail::Kernels::softmax_backward, dy, saved.get(), view, logarithm, dx);
    return std::vector<Tensor>{dx};
  };
  return detail::record(op, y, {x.variable}, backward, detail::traced([&] {
                          return Attributes{{"axis", std::int64_t{at}}};
                        }));
}

}  // namespace

Variable softmax(const Variable& x, int axis) { return softmax_operator("softmax", x, axis, false); }
Variable log_softmax(const Variable& x, int axis) { return softmax_operator("log_softmax", x, axis, true); }

Variable mse_loss(const Variable& x, const Variable& target) {
  constexpr std::string_view op = "mse_loss";
  const ProfileScope profile(op, "forward");
  const auto a = detail::floats(x, op), b = detail::matching_floats(target, a.tensor, op);
  FQ_CHECK(a.tensor.shape() == b.tensor.shape(), op,
           "the input is {}, the target {}: the shapes must be equal", to_string(a.tensor.shape()),
           to_string(b.tensor.shape()));
  const Tensor same = b.tensor.to(a.tensor.layout());
  Tensor loss = Tensor::empty({}, same.dtype(), same.device());
  detail::run(same.device(), &detail::Kernels::mse_loss, a.tensor, same, loss);
  const auto backward = [left = detail::Saved(a.tensor), right = detail::Saved(same)](const Tensor& dy) {
    Tensor da = detail::empty_like(left.get()), db = detail::empty_like(da);
    detail::run(da.device(), &detail::Kernels::mse_loss_backward, left.get(), right.get(), dy.to(da.dtype()),
                da, db);
    return std::vector<Tensor>{da, db};
  };
  return detail::record(op, loss, {a.variable, b.variable}, backward);
}

namespace {

constexpr std::string_view kOperator = "cross_entropy";

/// Logits with more elements are processed in chunks of whole samples. A single chunk keeps its
/// log-probabilities for backward. Several chunks recompute them, which avoids a copy of all logits: with a
/// vocabulary of 128 k classes they take gigabytes.
constexpr std::int64_t kChunkElements = std::int64_t{1} << 24;

/// Logits [N, C, ..] as rows [N * .., C], some samples at a time.
class LogitRows {
 public:
  explicit LogitRows(const Shape& shape)
      : shape_(shape), samples_(shape[0]), classes_(shape[1]), positions_(1) {
    for (std::size_t axis = 2; axis < shape.size(); ++axis) positions_ *= shape[axis];
    to_rows_.axes.push_back(0);
    for (int axis = 2; axis < static_cast<int>(shape.size()); ++axis) to_rows_.axes.push_back(axis);
    to_rows_.axes.push_back(1);
    per_chunk_ = std::clamp<std::int64_t>(kChunkElements / std::max<std::int64_t>(1, classes_ * positions_),
                                          1, std::max<std::int64_t>(1, samples_));
  }

  [[nodiscard]] bool is_one_chunk() const noexcept { return per_chunk_ >= samples_; }
  /// Returns the logits for backward. Chunks are slices of row-major memory.
  [[nodiscard]] Tensor kept(const Tensor& x) const { return is_one_chunk() ? x : x.to(Layout::row_major); }

  /// Returns the log softmax of the samples from `first`, rows [count * .., C].
  [[nodiscard]] Tensor log_probabilities(const Tensor& x, std::int64_t first) const {
    const Tensor samples = is_one_chunk() ? x : x.slice(first, end(first));
    const Tensor rows = as_rows(samples);
    Tensor out = detail::empty_like(rows);
    detail::run(out.device(), &detail::Kernels::softmax, rows, axis_view(rows.shape(), 1), true, out);
    return out;
  }
  /// Returns the labels of the same samples, [count * ..].
  [[nodiscard]] Tensor labels(const Tensor& all, std::int64_t first) const {
    return all.slice(first * positions_, end(first) * positions_);
  }
  /// Calls f(first) for each chunk.
  template <class F>
  void visit_chunks(const F& f) const {
    for (std::int64_t first = 0; first == 0 || first < samples_; first += per_chunk_) f(first);
  }
  /// Reshapes the gradients of a chunk's rows to [count, C, ..].
  [[nodiscard]] Tensor as_samples(const Tensor& rows, std::int64_t first) const {
    if (to_rows_.axes.size() == 2) return rows;
    Shape own = shape_;
    own[0] = end(first) - first;
    return moved_back(rows.reshape(moved_shape(own, to_rows_)), to_rows_, own);
  }

 private:
  [[nodiscard]] std::int64_t end(std::int64_t first) const { return std::min(samples_, first + per_chunk_); }
  [[nodiscard]] Tensor as_rows(const Tensor& samples) const {
    if (samples.rank() == 2) return samples;
    return moved(samples, to_rows_).to(Layout::row_major).reshape({samples.dim(0) * positions_, classes_});
  }

  Shape shape_;
  PermuteMove to_rows_;
  std::int64_t samples_, classes_, positions_, per_chunk_;
};

/// Returns the class weights followed by their sum, the form that LabelRule expects.
Tensor weights_and_sum(const Tensor& weights, std::int64_t classes, Device device) {
  if (!weights.defined()) return {};
  FQ_CHECK(weights.shape() == Shape{classes} && is_floating(weights.dtype()), kOperator,
           "the class weights are {}, there are {} classes: use a float for each", weights.describe(),
           classes);
  std::vector<double> all = weights.to(DType::f64).to_vector<double>();
  all.push_back(std::accumulate(all.begin(), all.end(), 0.0));
  return detail::constant(Tensor::from(all, {classes + 1}), device);
}

void check_arguments(const Tensor& logits, const Tensor& labels, double label_smoothing) {
  FQ_CHECK(logits.rank() >= 2 && logits.dim(1) > 1, kOperator,
           "the logits are {}: use [N, C, ..] with C of 2 or more, as the softmax of one output is always 1",
           logits.describe());
  Shape labels_shape = logits.shape();
  labels_shape.erase(labels_shape.begin() + 1);
  FQ_CHECK(labels.defined() && labels.shape() == labels_shape &&
               (labels.dtype() == DType::i64 || labels.dtype() == DType::i32) &&
               labels.device() == logits.device(),
           kOperator, "the labels are {}, the logits {}: use i64 {} on their device", labels.describe(),
           logits.describe(), to_string(labels_shape));
  FQ_CHECK(label_smoothing >= 0 && label_smoothing <= 1, kOperator, "label_smoothing is {}: use 0 to 1",
           label_smoothing);
}

/// Returns the gradient of a chunk's rows. It overwrites the log-probabilities of the chunk.
Tensor row_gradients(Tensor log_p, const Tensor& labels, const LabelRule& rule, const Tensor& totals,
                     const Tensor& dy) {
  detail::run(log_p.device(), &detail::Kernels::cross_entropy_backward, log_p, labels, rule, totals, dy,
              log_p);
  return log_p;
}

}  // namespace

Variable cross_entropy(const Variable& logits, const Tensor& labels, double label_smoothing,
                       std::optional<std::int64_t> ignored, const Tensor& class_weights) {
  const ProfileScope profile(kOperator, "forward");
  const auto x = detail::floats(logits, kOperator);
  check_arguments(x.tensor, labels, label_smoothing);
  const Tensor classes = labels.to(DType::i64).reshape({labels.numel()});
  const Device device = x.tensor.device();
  const DType dtype = x.tensor.dtype();
  const LabelRule rule{label_smoothing, ignored, weights_and_sum(class_weights, x.tensor.dim(1), device)};
  detail::run(device, &detail::Kernels::check_indices, classes, x.tensor.dim(1), ignored, kOperator, "label");
  const LogitRows rows(x.tensor.shape());
  const Tensor saved_logits = rows.kept(x.tensor);
  Tensor loss = Tensor::empty({}, dtype, device), totals = Tensor::zeros({2}, DType::f64, device), log_p;
  rows.visit_chunks([&](std::int64_t first) {
    log_p = rows.log_probabilities(saved_logits, first);
    detail::run(device, &detail::Kernels::cross_entropy, log_p, rows.labels(classes, first), rule, totals,
                loss);
  });
  // The last chunk alone is of no use to backward.
  if (!rows.is_one_chunk()) log_p = {};
  const auto backward = [rows, rule, dtype, totals, log_p,
                         saved = detail::Saved(rows.is_one_chunk() ? Tensor() : saved_logits),
                         targets = detail::Saved(classes)](const Tensor& dy) mutable {
    const Tensor factor = dy.to(dtype);
    if (log_p.defined())
      return std::vector<Tensor>{
          rows.as_samples(row_gradients(std::move(log_p), targets.get(), rule, totals, factor), 0)};
    Tensor dx = detail::empty_like(saved.get());
    rows.visit_chunks([&](std::int64_t first) {
      const Tensor own = row_gradients(rows.log_probabilities(saved.get(), first),
                                       rows.labels(targets.get(), first), rule, totals, factor);
      const Tensor samples = rows.as_samples(own, first);
      dx.slice(first, first + samples.dim(0)).copy_from(samples);
    });
    return std::vector<Tensor>{dx};
  };
  return detail::record(kOperator, loss, {x.variable}, backward, detail::traced([&] {
                          return Attributes{{"label_smoothing", label_smoothing}};
                        }));
}

}  // namespace fq::ops
