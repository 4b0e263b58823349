#include "fakequant/train/calibration/detail/range_cost.h"

#include <algorithm>
#include <vector>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/quantized.h"
#include "fakequant/train/calibration/calibration_report.h"

namespace fq::detail {
namespace {

// Elements per block: partial sums of blocks are added in order, for any number of threads.
constexpr std::int64_t kErrorBlock = 1 << 14;

ErrorSums block_sums(const float* x, const float* y, const double* counts, std::int64_t size) {
  ErrorSums out;
  for (std::int64_t i = 0; i < size; ++i) {
    const double value = x[i], error = static_cast<double>(y[i]) - value;
    const double count = counts == nullptr ? 1 : counts[i];
    out.error += error * error * count;
    out.signal += value * value * count;
  }
  return out;
}

// Values within a bin count as this many points at equal distances.
constexpr int kPointsInBin = 8;

std::unique_ptr<TensorQuantizer> make_quantizer(const TensorQuantizer& q, QuantDescriptorOptions fields) {
  // A measurement needs no gradient of the range.
  fields.learn_amax = false;
  QuantParams params;
  params.name = q.name();
  params.descriptor = QuantDescriptor(std::move(fields));
  params.arithmetic = q.params().arithmetic;
  params.pow2 = q.params().pow2;
  return std::make_unique<TensorQuantizer>(std::move(params));
}

}  // namespace

ErrorSums error_sums(const Tensor& values, const Tensor& others, std::span<const double> counts) {
  const Tensor x = values.to(Device::cpu()), y = others.to(Device::cpu());
  const float *a = x.data<float>(x.layout()), *b = y.data<float>(x.layout());
  const double* c = counts.empty() ? nullptr : counts.data();
  std::vector<ErrorSums> blocks(static_cast<std::size_t>((x.numel() + kErrorBlock - 1) / kErrorBlock));
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(blocks.size()); ++i) {
    const std::int64_t at = i * kErrorBlock;
    blocks[static_cast<std::size_t>(i)] =
        block_sums(a + at, b + at, c == nullptr ? c : c + at, std::min(kErrorBlock, x.numel() - at));
  }
  ErrorSums out;
  for (const auto& block : blocks) {
    out.error += block.error;
    out.signal += block.signal;
  }
  return out;
}

std::unique_ptr<TensorQuantizer> with_method(const TensorQuantizer& q, const std::string& method) {
  auto fields = q.descriptor().options();
  fields.calib_method = method;
  fields.amax = {};
  return make_quantizer(q, std::move(fields));
}

void set_amax(RangeReport& range, const Tensor& amax) {
  const auto values = amax.to(DType::f32).to_vector<float>();
  const auto [lowest, highest] = std::ranges::minmax(values);
  range.lowest = lowest;
  range.highest = highest;
}

RangeCost::RangeCost(const TensorQuantizer& q, QuantDescriptorOptions fields, const Tensor& values)
    : like_(q),
      fields_(std::move(fields)),
      values_(values.to(DType::f32)),
      total_(static_cast<double>(values.numel())) {}

RangeCost::RangeCost(const TensorQuantizer& q, QuantDescriptorOptions fields,
                     const CollectedHistogram& collected)
    : like_(q), fields_(std::move(fields)), total_(static_cast<double>(collected.count())) {
  if (!collected.known()) unknown_ = "there is no histogram of the tensor";
  if (fields_.is_unsigned && q.observer().minimum().value_or(0) < 0)
    unknown_ =
        "values below 0 were seen, and a histogram of magnitudes does not show their error in an unsigned "
        "format";
  if (!fields_.axis.empty() || !fields_.block_sizes.empty())
    unknown_ = "a histogram of the whole tensor does not show the clipping of each range";
  add_points(collected, -q.observer().minimum().value_or(0));
}

void RangeCost::add_points(const CollectedHistogram& collected, float most_negative) {
  const Histogram h = collected.nonzero_histogram();
  const auto largest = static_cast<float>(collected.largest().value_or(0));
  std::vector<float> points;
  for (std::size_t k = 0; k < h.counts.size(); ++k) {
    if (h.counts[k] == 0) continue;
    const double count = static_cast<double>(h.counts[k]) / kPointsInBin;
    // The last bin ends at the largest value, not at its edge.
    const float width = std::max(std::min(h.edges[k + 1], largest) - h.edges[k], 0.0f) / kPointsInBin;
    for (int i = 0; i < kPointsInBin; ++i) {
      const float x = h.edges[k] + width * (static_cast<float>(i) + 0.5f);
      // A histogram has magnitudes only. Up to the most negative value, half of them count as negative.
      const int signs = x <= most_negative ? 2 : 1;
      points.push_back(x);
      if (signs == 2) points.push_back(-x);
      counts_.insert(counts_.end(), static_cast<std::size_t>(signs), count / signs);
    }
  }
  values_ = Tensor::from(points, {static_cast<std::int64_t>(points.size())});
}

double RangeCost::clipped(const TensorQuantizer& q) const {
  const Tensor mask = quantize(values_, q.grid()).mask;
  const auto* bytes = static_cast<const std::uint8_t*>(mask.raw());
  double sum = 0;
  for (std::int64_t i = 0; i < values_.numel(); ++i)
    // The mask has one bit per element, least significant first; 0 is a clipped value.
    if ((bytes[i / 8] >> (i % 8) & 1) == 0) sum += counts_.empty() ? 1 : counts_[static_cast<std::size_t>(i)];
  return total_ > 0 ? sum / total_ : 0;
}

void RangeCost::measure(const Tensor& amax, RangeReport& range) const {
  // The range is reported even if its error cannot be measured.
  if (amax.defined()) set_amax(range, amax);
  FQ_CHECK(unknown_.empty(), "calibration_report", "{}", unknown_);
  const auto q = make_quantizer(like_, fields_);
  if (amax.defined()) q->set_amax(amax);
  ErrorSums sums;
  if (values_.numel() > 0)
    sums = error_sums(values_, q->quantized_values(values_).to(DType::f32).to(values_.layout()), counts_);
  range.sqnr_db = QuantizationError{{}, 0, sums.error, sums.signal}.sqnr_db();
  const auto& d = q->descriptor();
  // Ranges from each input clip nothing.
  const bool fixed_grid = amax.defined() && !d.dynamic() && !d.has_dynamic_blocks();
  if (fixed_grid && q->params().arithmetic == Arithmetic::deployed)
    range.clipped = values_.numel() > 0 ? clipped(*q) : 0;
}

}  // namespace fq::detail
