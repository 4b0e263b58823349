#include <algorithm>

#include "fakequant/core/backend/batch_norm_numbers.h"
#include "fakequant/core/ops/detail/operator.h"
#include "fakequant/core/ops/norm.h"
#include "fakequant/core/variable.h"

namespace fq::detail {
namespace {

/// Input x = (values + bias[c]) * scale[c], or the values themselves if scale is undefined. Kernels require
/// the channels innermost. With known statistics any order works.
struct NormRows {
  Tensor values;
  Tensor bias, scale;

  /// Returns the rows of floats [N, C], [N, C, L], [N, C, H, W] or [N, C, D, H, W].
  [[nodiscard]] static NormRows of(const Tensor& floats);
  [[nodiscard]] static NormRows of(const ProductSums& sums);

  [[nodiscard]] bool are_sums() const { return scale.defined(); }
  [[nodiscard]] std::int64_t channels() const { return values.dim(1); }
  [[nodiscard]] std::int64_t count() const { return channels() == 0 ? 0 : values.numel() / channels(); }
  /// Returns the dtype of the computation.
  [[nodiscard]] DType dtype() const { return are_sums() ? DType::f32 : values.dtype(); }
  [[nodiscard]] Device device() const { return values.device(); }
  [[nodiscard]] NormGrid grid() const { return {{bias, 0.0}, {scale, 1.0}}; }
};

/// Returns whether `channels_inner` keeps this shape.
[[nodiscard]] inline bool is_channels_inner(const Shape& shape) {
  return shape.size() == 2 || shape.size() == 4;
}

/// Source of the moments. `mean` and `variance` are the running statistics of x. Training updates them:
/// running = (1 - momentum) * running + momentum * batch.
struct NormStatistics {
  Tensor mean, variance;
  bool training;
  double momentum, eps;
  const ProductOrigin* origin;  ///< origin of the sums, to fold the norm into their layer, or null
};

/// Per-channel numbers of a pass, in the dtype of x except `inverse`.
struct NormNumbers {
  /// [3, C]: center, factor and shift of y = (x - center) * factor + shift. For sums: y = sum * factor +
  /// shift.
  Tensor coefficients;
  Tensor inverse;     ///< f64 [C], 1 / sqrt(var + eps)
  bool of_batch;      ///< whether the moments are computed from x
  Tensor folded;      ///< f32 [2, C], factor and shift of sums as in the folded layer; or undefined
  Tensor bias_codes;  ///< i32 [C], bias codes of the folded layer; defined with `folded`

  /// Computes the numbers. Throws ArgumentError for training with one row.
  [[nodiscard]] static NormNumbers of(const NormRows& x, const Tensor& gamma, const Tensor& beta,
                                      NormStatistics statistics);
  [[nodiscard]] Tensor center() const { return coefficients.slice(0, 1); }
};

/// Returns [N, C] unchanged, and other shapes as a channels_last image: [N, C, L] with height 1, [N, C, D, H,
/// W] with D * H rows.
Tensor channels_inner(const Tensor& x) {
  if (x.rank() == 2) return x;
  if (x.rank() == 4) return x.to(Layout::channels_last);
  const std::int64_t rows = x.rank() == 3 ? 1 : x.dim(2) * x.dim(3);
  return x.reshape({x.dim(0), x.dim(1), rows, x.dim(-1)}).to(Layout::channels_last);
}

/// Returns the product sums of a whole layer, with channels on axis 1. Null for any other value.
const ProductSums* whole_layer_sums(const Variable& x) {
  const Accumulator* accumulator = x.accumulator();
  if (accumulator == nullptr || accumulator->relu) return nullptr;
  const auto* sums = std::get_if<ProductSums>(&accumulator->value);
  return sums != nullptr && sums->axis == 1 ? sums : nullptr;
}

/// Returns `whole_layer_sums(x)` if the channels are innermost, else null.
const ProductSums* normalizable_sums(const Variable& x) {
  const ProductSums* sums = whole_layer_sums(x);
  if (sums == nullptr) return nullptr;
  const bool inner = sums->sums.layout() == Layout::channels_last || sums->sums.rank() == 2;
  return inner ? sums : nullptr;
}

/// Returns the sums if their origin is known, for any position of the channels.
const ProductSums* foldable_sums(const Variable& x) {
  const ProductSums* sums = whole_layer_sums(x);
  return sums != nullptr && sums->origin != nullptr ? sums : nullptr;
}

NormRows NormRows::of(const Tensor& floats) { return {channels_inner(floats), {}, {}}; }
NormRows NormRows::of(const ProductSums& x) { return {x.sums, x.bias, x.scale}; }

NormFolding norm_folding(const ProductOrigin* origin, std::int64_t channels, NormNumbers& out) {
  const Tensor none;
  if (origin == nullptr) return {{none, 0.0}, {none, 0.0}, {none, 0.0}, 1.0f, 0, {}, nullptr};
  const Device device = out.coefficients.device();
  out.folded = Tensor::empty({2, channels}, DType::f32, device);
  out.bias_codes = Tensor::empty({channels}, DType::i32, device);
  return {{origin->x_scale, 0.0},
          {origin->amax, 0.0},
          {origin->bias, 0.0},
          origin->bound,
          bias_room(origin->largest_sum),
          {out.folded, channels},
          static_cast<std::int32_t*>(out.bias_codes.mutable_raw())};
}

NormNumbers NormNumbers::of(const NormRows& x, const Tensor& gamma, const Tensor& beta, NormStatistics s) {
  const std::int64_t channels = x.channels(), rows = x.count();
  FQ_CHECK(!s.training || rows != 1 || x.device().is_meta(), "batch_norm",
           "training on {} has one value a channel: use a larger batch", to_string(x.values.shape()));
  FQ_CHECK(!s.training || rows >> 32 == 0, "batch_norm",
           "training on {} has 2^32 or more values a channel: use a smaller batch",
           to_string(x.values.shape()));
  const Device device = x.device();
  Tensor moments;
  if (s.training) {
    moments = Tensor::empty({2, channels}, DType::f64, device);
    run(device, &Kernels::moments, x.values, moments);
  }
  NormNumbers out{Tensor::empty({3, channels}, x.dtype(), device),
                  Tensor::empty({channels}, DType::f64, device),
                  s.training,
                  {},
                  {}};
  const bool moves = s.training && rows > 1 && !device.is_meta();
  const Tensor none;
  const BatchNormForward numbers{
      .grid = x.grid(),
      .gamma = {gamma, 1.0},
      .beta = {beta, 0.0},
      .moments = {moments, channels},
      .mean = {s.training ? none : s.mean, 0.0},
      .variance = {s.training ? none : s.variance, 1.0},
      .running_mean = {moves ? s.mean : none, channels},
      .running_variance = {moves ? s.variance : none, channels},
      .momentum = s.momentum,
      .unbiased = moves ? static_cast<double>(rows) / static_cast<double>(rows - 1) : 0.0,
      .eps = s.eps,
      .are_sums = x.are_sums(),
      .coefficients = {out.coefficients, channels},
      .inverse = {out.inverse, channels},
      .folding = norm_folding(s.origin, channels, out)};
  run(device, &Kernels::forward_numbers, numbers, channels, device);
  return out;
}

}  // namespace
}  // namespace fq::detail

namespace fq::ops {
namespace {

using detail::NormNumbers;
using detail::NormRows;

constexpr std::string_view kBatchNorm = "batch_norm";

/// Converts y back to the shape of x. 4-D stays channels_last.
Tensor outer_shape(const Tensor& y, const Shape& shape) {
  return detail::is_channels_inner(shape) ? y : y.to(Layout::row_major).reshape(shape);
}

void check_channels(const Tensor& tensor, std::int64_t channels, std::string_view what) {
  FQ_CHECK(!tensor.defined() || tensor.shape() == Shape{channels}, kBatchNorm,
           "{} is {}, the input has {} channels: use [{}]", what, to_string(tensor.shape()), channels,
           channels);
}

/// Returns dx, dgamma and dbeta.
std::vector<Tensor> gradients(const Tensor& dy, const NormRows& x, const Tensor& gamma,
                              const NormNumbers& numbers) {
  const std::int64_t channels = x.channels();
  const Device device = dy.device();
  const Tensor center = numbers.center();
  Tensor sums = Tensor::empty({2, channels}, DType::f64, device);
  detail::run(device, &detail::Kernels::gradient_sums, dy, x.values, center, sums);
  Tensor coefficients = Tensor::empty({3, channels}, dy.dtype(), device);
  Tensor dgamma = Tensor::empty({channels}, dy.dtype(), device), dbeta = detail::empty_like(dgamma);
  const detail::BatchNormBackward back{.grid = x.grid(),
                                       .gamma = {gamma, 1.0},
                                       .inverse = {numbers.inverse, 1.0},
                                       .sums = {sums, channels},
                                       .rows = std::max(1.0, static_cast<double>(x.count())),
                                       .of_batch = numbers.of_batch,
                                       .coefficients = {coefficients, channels},
                                       .dgamma = {dgamma, channels},
                                       .dbeta = {dbeta, channels}};
  detail::run(device, &detail::Kernels::backward_numbers, back, channels, device);
  Tensor dx = detail::gradient_buffer(dy);
  detail::run(device, &detail::Kernels::normalize_backward, dy, x.values, center, coefficients, dx);
  return {dx, dgamma, dbeta};
}

Tensor normalized(const NormRows& x, const NormNumbers& numbers) {
  Tensor y = detail::empty_like(x.values);
  detail::run(y.device(), &detail::Kernels::normalize, x.values, numbers.coefficients, y);
  return y;
}

Accumulator normalized_sums(const NormRows& x, const NormNumbers& numbers) {
  const auto row = [&](const Tensor& rows, std::int64_t i) {
    return rows.slice(i, i + 1).reshape({x.channels()});
  };
  if (numbers.folded.defined())
    return {NormalizedSums{x.values, row(numbers.folded, 0), row(numbers.folded, 1), 1, numbers.bias_codes}};
  return {NormalizedSums{x.values, row(numbers.coefficients, 1), row(numbers.coefficients, 2)}};
}

/// Checked inputs: either `sums` or `floats` are used. Undefined gamma and beta stay undefined.
struct Inputs {
  Variable x;
  const ProductSums* sums;
  Tensor floats;
  detail::Floats gamma, beta;
  Tensor mean, variance;  // running

  /// Returns the inputs. A trace also gets the running statistics.
  [[nodiscard]] std::vector<Variable> variables() const {
    std::vector<Variable> all{x, gamma.variable, beta.variable};
    if (recorder() != nullptr && mean.defined()) all.insert(all.end(), {Variable(mean), Variable(variance)});
    return all;
  }
  [[nodiscard]] NormRows rows() const { return sums != nullptr ? NormRows::of(*sums) : NormRows::of(floats); }
  [[nodiscard]] const ProductOrigin* origin() const { return sums != nullptr ? sums->origin.get() : nullptr; }
};

Inputs read(const Variable& x, bool folded) {
  if (const ProductSums* sums = folded ? detail::foldable_sums(x) : nullptr;
      sums != nullptr || (sums = detail::normalizable_sums(x)) != nullptr)
    return {x, sums, Tensor::empty({0}, DType::f32, x.device()), {}, {}, {}, {}};
  auto floats = detail::floats(x, kBatchNorm);
  return {floats.variable, nullptr, floats.tensor, {}, {}, {}, {}};
}

Inputs checked(const Variable& x, const Variable& gamma, const Variable& beta, const Tensor& mean,
               const Tensor& variance, bool training, bool folded) {
  FQ_CHECK(x.defined(), kBatchNorm, "the input is undefined");
  const Shape shape = x.shape();
  FQ_CHECK(shape.size() >= 2 && shape.size() <= 5, kBatchNorm,
           "the input is {}: use [N, C], [N, C, L], [N, C, H, W] or [N, C, D, H, W]", to_string(shape));
  Inputs in = read(x, folded);
  if (gamma.defined()) in.gamma = detail::matching_floats(gamma, in.floats, kBatchNorm);
  if (beta.defined()) in.beta = detail::matching_floats(beta, in.floats, kBatchNorm);
  check_channels(in.gamma.tensor, shape[1], "gamma");
  check_channels(in.beta.tensor, shape[1], "beta");
  check_channels(mean, shape[1], "the running mean");
  check_channels(variance, shape[1], "the running variance");
  in.mean = mean;
  in.variance = variance;
  for (const Tensor& running : {mean, variance})
    FQ_CHECK(!running.defined() || x.device().is_meta() || running.device() == x.device(), kBatchNorm,
             "the running statistics are {}, the input is on {}: use one device", running.describe(),
             to_string(x.device()));
  FQ_CHECK(training || (mean.defined() && variance.defined()), kBatchNorm,
           "evaluation needs the running mean and variance: use both, or training = true");
  return in;
}

Value normalized_value(const Inputs& in, const NormRows& rows, const NormNumbers& numbers) {
  if (rows.are_sums()) return normalized_sums(rows, numbers);
  return outer_shape(normalized(rows, numbers), in.x.shape());
}

}  // namespace

Variable batch_norm(const Variable& x, const Variable& gamma, const Variable& beta, Tensor running_mean,
                    Tensor running_var, bool training, double momentum, double eps, bool in_layer) {
  const bool folded = in_layer && !training;
  const Inputs in = checked(x, gamma, beta, running_mean, running_var, training, folded);
  auto attributes = detail::traced([&] {
    return Attributes{{"training", training}, {"momentum", momentum}, {"eps", eps}};
  });
  const NormRows rows = in.rows();
  const auto numbers = NormNumbers::of(rows, in.gamma.tensor, in.beta.tensor,
                                       {std::move(running_mean), std::move(running_var), training, momentum,
                                        eps, folded ? in.origin() : nullptr});
  const auto backward = [saved = detail::Saved(rows.values), rows_with = NormRows{{}, rows.bias, rows.scale},
                         saved_gamma = detail::Saved(in.gamma.tensor), numbers,
                         shape = in.x.shape()](const Tensor& dy) {
    const NormRows saved_rows{detail::channels_inner(saved.get()), rows_with.bias, rows_with.scale};
    auto out = gradients(detail::is_channels_inner(shape) ? dy : detail::channels_inner(dy), saved_rows,
                         saved_gamma.get(), numbers);
    out[0] = outer_shape(out[0], shape);
    return out;
  };
  return detail::record(kBatchNorm, normalized_value(in, rows, numbers), in.variables(), backward,
                        std::move(attributes));
}

}  // namespace fq::ops
