#include "fakequant/core/ops/detail/batch_norm_rows.h"

#include "fakequant/core/ops/detail/operator.h"

namespace fq::detail {

Tensor channels_inner(const Tensor& x) {
  if (x.rank() == 2) return x;
  if (x.rank() == 4) return x.to(Layout::channels_last);
  const std::int64_t rows = x.rank() == 3 ? 1 : x.dim(2) * x.dim(3);
  return x.reshape({x.dim(0), x.dim(1), rows, x.dim(-1)}).to(Layout::channels_last);
}

const ProductSums* product_sums_of(const Variable& x) {
  const Accumulator* accumulator = x.accumulator();
  if (accumulator == nullptr || accumulator->relu) return nullptr;
  const auto* sums = std::get_if<ProductSums>(&accumulator->value);
  return sums != nullptr && sums->axis == 1 ? sums : nullptr;
}

const ProductSums* normalizable_sums(const Variable& x) {
  const ProductSums* sums = product_sums_of(x);
  if (sums == nullptr) return nullptr;
  const bool inner = sums->sums.layout() == Layout::channels_last || sums->sums.rank() == 2;
  return inner ? sums : nullptr;
}

const ProductSums* foldable_sums(const Variable& x) {
  const ProductSums* sums = product_sums_of(x);
  return sums != nullptr && sums->origin != nullptr ? sums : nullptr;
}

NormRows NormRows::of(const Tensor& floats) { return {channels_inner(floats), {}, {}}; }
NormRows NormRows::of(const ProductSums& x) { return {x.sums, x.bias, x.scale}; }

namespace {

NormFolding folding_of(const ProductOrigin* origin, std::int64_t channels, NormNumbers& out) {
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

}  // namespace

NormNumbers NormNumbers::of(const NormRows& x, const Tensor& gamma, const Tensor& beta, NormStatistics s) {
  const std::int64_t channels = x.channels(), rows = x.count();
  FQ_CHECK(!s.training || rows != 1 || x.device().is_meta(), "batch_norm",
           "training on {} has one value a channel: give a larger batch", to_string(x.values.shape()));
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
      .folding = folding_of(s.origin, channels, out)};
  run(device, &Kernels::forward_numbers, numbers, channels, device);
  return out;
}

}  // namespace fq::detail
