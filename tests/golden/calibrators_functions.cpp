#include "fakequant/calib/calibrator.h"
#include "fakequant/calib/histogram.h"
#include "fakequant/core/error.h"
#include "functions.h"

namespace fq::golden {
namespace {

Axes case_axes(const Case& c) {
  const auto axes = c.integers("axis");
  return std::vector<int>(axes.begin(), axes.end());
}

NumBits case_num_bits(const Case& c) {
  const auto bits = c.integers("num_bits");
  if (bits.size() == 2) return {static_cast<int>(bits[0]), static_cast<int>(bits[1])};
  return c.integer("num_bits", 8);
}

Outputs max_calibrator(const Case& c) {
  MaxCalibrator calibrator(case_axes(c));
  for (const Tensor& batch : c.batches()) calibrator.collect(batch);
  return {{"amax", calibrator.compute_amax()}};
}

Outputs histogram_collect(const Case& c) {
  HistogramCalibrator calibrator(
      "percentile", {.axis = case_axes(c),
                     .num_bins = c.integer("num_bins", 2048),
                     .skip_zeros = c.flag("skip_zeros", false),
                     .grid = c.flag("torch_hist", true) ? HistogramGrid::torch : HistogramGrid::numpy});
  for (const Tensor& batch : c.batches()) calibrator.collect(batch);
  const Histogram& h = calibrator.histogram();
  const auto bins = static_cast<std::int64_t>(h.counts.size());
  const Tensor edges =
      h.wide_edges.empty() ? Tensor::from(h.edges, {bins + 1}) : Tensor::from(h.wide_edges, {bins + 1});
  return {{"hist", Tensor::from(h.counts, {bins})}, {"bin_edges", edges}};
}

Tensor as_floats(const std::vector<double>& values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())}).to(DType::f32);
}

Outputs histogram_compute_amax(const Case& c) {
  const Histogram h{c.tensor("hist").to_vector<std::int64_t>(), c.tensor("bin_edges").to_vector<float>()};
  const std::string method = c.text("method");
  const int stride = c.integer("stride", 1), start = c.integer("start_bin", 128);
  if (method == "percentile")
    return {{"amax", Tensor::scalar(amax_by_percentile(h, c.number("percentile", 99.99)))}};
  if (method != "entropy" && method != "mse") return (void)HistogramCalibrator(method), Outputs{};
  std::vector<double> searched;
  const NumBits bits = case_num_bits(c);
  const bool is_unsigned = c.flag("unsigned", false);
  const float amax = method == "entropy"
                         ? amax_by_entropy(h, bits, is_unsigned, stride, start, &searched, true)
                         : amax_by_mse(h, bits, is_unsigned, stride, start, &searched);
  return {{"amax", Tensor::scalar(amax)}, {method == "entropy" ? "divergences" : "mse", as_floats(searched)}};
}

}  // namespace

void add_calibrators(Functions& functions) {
  functions["max_calibrator"] = max_calibrator;
  functions["histogram_collect"] = histogram_collect;
  functions["histogram_compute_amax"] = histogram_compute_amax;
}

}  // namespace fq::golden
