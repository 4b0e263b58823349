#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "fakequant/core/detail/check.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/train/calibration/calibration_report.h"
#include "fakequant/train/calibration/detail/calibration_targets.h"
#include "fakequant/train/calibration/detail/error_sums.h"
#include "fakequant/train/calibration/detail/watching.h"

namespace fq {
namespace {

void measure(TensorQuantizer& q, const Tensor& x, QuantizationError& sum) {
  const Tensor values = x.to(DType::f32);
  const auto sums = detail::error_sums(values, q.quantized_values(values).to(DType::f32).to(values.layout()));
  sum.mse += sums.error;
  sum.signal += sums.signal;
  sum.elements += x.numel();
}

}  // namespace

double QuantizationError::sqnr_db() const {
  if (signal == 0) return 0;
  return mse == 0 ? std::numeric_limits<double>::infinity() : 10 * std::log10(signal / mse);
}

std::vector<QuantizationError> compute_quantization_mse(Module& model, DataLoader& data, std::int64_t samples,
                                                        std::string_view pattern) {
  FQ_CHECK(samples >= 0, "compute_quantization_mse", "{} samples: use 1 or more, or 0 for all", samples);
  check_not_compressed(model, "compute_quantization_mse");
  const auto weights = detail::weights_of(model);
  std::vector<NamedQuantizer> entries;
  for_each_quantizer(model, pattern, "compute_quantization_mse", [&](const NamedQuantizer& entry) {
    auto& q = *entry.quantizer;
    if (!q.params().enabled) return;
    FQ_CHECK(q.amax().defined() || !q.descriptor().needs_amax(), "compute_quantization_mse",
             "'{}' has no range: calibrate it first", entry.name);
    entries.push_back(entry);
  });
  std::vector<QuantizationError> out(entries.size());
  detail::Watching watching(model);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    auto& q = *entries[i].quantizer;
    out[i].name = entries[i].name;
    if (const auto weight = weights.find(&q); weight != weights.end())
      measure(q, weight->second.tensor(), out[i]);
    else
      watching.observe(q, [&q, &sum = out[i]](const Tensor& x) { measure(q, x, sum); });
  }
  FQ_CHECK(watching.run(data, samples) > 0, "compute_quantization_mse",
           "there is no data: give at least one image");
  for (auto& error : out) {
    const double count = static_cast<double>(std::max<std::int64_t>(error.elements, 1));
    error.mse /= count;
    error.signal /= count;
  }
  return out;
}

}  // namespace fq
