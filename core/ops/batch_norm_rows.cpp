#include "fakequant/core/ops/batch_norm_rows.h"

#include <cmath>

#include "fakequant/core/check.h"
#include "fakequant/core/convert.h"

namespace fq::detail {
namespace {

constexpr std::string_view kBatchNormRows = "batch_norm";

void update(Tensor& running, const cpu::PerChannel& batch, double factor, double momentum) {
  if (!running.defined()) return;
  visit_float(running.dtype(), kBatchNormRows, [&]<class T>(T) {
    T* values = running.mutable_data<T>();
    for (std::size_t c = 0; c < batch.size(); ++c)
      values[c] =
          static_cast<T>((1.0 - momentum) * static_cast<double>(values[c]) + momentum * factor * batch[c]);
  });
}

}  // namespace

Tensor channels_inner(const Tensor& x) {
  if (x.rank() == 2) return x;
  if (x.rank() == 4) return x.to(Layout::channels_last);
  return x.reshape({x.dim(0), x.dim(1), 1, x.dim(2)}).to(Layout::channels_last);
}

cpu::PerChannel values_or(const Tensor& tensor, std::int64_t channels, double otherwise) {
  return tensor.defined() ? tensor.to(DType::f64).to_vector<double>()
                          : cpu::PerChannel(static_cast<std::size_t>(channels), otherwise);
}

const ProductSums* normalizable_sums(const Variable& x) {
  const Accumulator* accumulator = x.accumulator();
  if (accumulator == nullptr || accumulator->relu) return nullptr;
  const auto* sums = std::get_if<ProductSums>(&accumulator->value);
  if (sums == nullptr || sums->axis != 1) return nullptr;
  const bool inner = sums->sums.layout() == Layout::channels_last || sums->sums.rank() == 2;
  return inner ? sums : nullptr;
}

NormRows NormRows::of(const Tensor& floats) { return {channels_inner(floats), {}, {}}; }

NormRows NormRows::of(const ProductSums& x) {
  const std::int64_t channels = x.sums.dim(1);
  NormRows rows{x.sums, values_or(x.bias, channels, 0.0), x.scale.to(DType::f64).to_vector<double>()};
  if (x.scale.numel() == 1) rows.scale.assign(static_cast<std::size_t>(channels), rows.scale[0]);
  return rows;
}

cpu::PerChannel NormRows::to_values(cpu::PerChannel mean) const {
  for (std::size_t c = 0; are_sums() && c < mean.size(); ++c) mean[c] = mean[c] / scale[c] - bias[c];
  return mean;
}

cpu::Moments NormRows::moments() const {
  cpu::Moments m = cpu::moments(values, channels());
  for (std::size_t c = 0; are_sums() && c < m.mean.size(); ++c) {
    m.mean[c] = (m.mean[c] + bias[c]) * scale[c];
    m.variance[c] *= scale[c] * scale[c];
  }
  return m;
}

BatchStatistics BatchStatistics::of(const NormRows& x, Tensor& mean, Tensor& variance, bool training,
                                    double momentum, double eps) {
  const std::int64_t rows = x.count();
  BatchStatistics out{{}, {}, training};
  cpu::Moments m;
  if (training) {
    FQ_CHECK(rows != 1, kBatchNormRows, "training on {} has one value a channel: give a larger batch",
             to_string(x.values.shape()));
    m = x.moments();
    if (rows > 1) {
      update(mean, m.mean, 1.0, momentum);
      update(variance, m.variance, static_cast<double>(rows) / static_cast<double>(rows - 1), momentum);
    }
  } else {
    m = {values_or(mean, x.channels(), 0.0), values_or(variance, x.channels(), 1.0)};
  }
  out.mean = std::move(m.mean);
  out.inverse = std::move(m.variance);
  for (auto& v : out.inverse) v = 1.0 / std::sqrt(v + eps);
  return out;
}

}  // namespace fq::detail
