#include "fakequant/train/calibration/detail/clipped_share.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "fakequant/core/quantized.h"
#include "fakequant/core/tape.h"
#include "fakequant/core/trace.h"
#include "fakequant/layers/modules/detail/evaluation_mode.h"
#include "fakequant/layers/quantize.h"

namespace fq::detail {
namespace {

/// The largest range of each, by name.
std::map<std::string, double> ranges_of(Module& model) {
  const auto weights = weight_quantizers(model);
  std::map<std::string, double> out;
  for (const auto& entry : named_quantizers(model)) {
    const TensorQuantizer& q = *entry.quantizer;
    const bool on = q.enabled() && q.quantizing() && q.descriptor().needs_amax() && q.amax().defined();
    if (!on || weights.contains(entry.quantizer) || q.descriptor().has_dynamic_blocks()) continue;
    const auto amax = q.range().used().to_vector<float>();
    out[q.name()] = *std::ranges::max_element(amax);
  }
  return out;
}

class ClippingWatch : public Recorder {
 public:
  explicit ClippingWatch(const std::map<std::string, double>& ranges) : ranges_(ranges) {}

  void on_op(std::string_view op, const std::vector<Variable>& inputs, const Variable& output,
             Attributes) override {
    const QuantizedTensor* codes = op == "quantize" ? output.quantized() : nullptr;
    if (codes == nullptr || output.numel() == 0) return;
    const auto range = ranges_.find(codes->spec.name);
    if (range == ranges_.end()) return;
    const bool is_unsigned = codes->spec.format.lower() == 0;
    const auto values = inputs.at(0).tensor().to(Device::cpu()).to(DType::f32).to_vector<float>();
    const auto beyond = std::ranges::count_if(
        values, [&](float v) { return is_unsigned ? v > range->second : std::fabs(v) > range->second; });
    shares.emplace_back(codes->spec.name, static_cast<double>(beyond) / static_cast<double>(values.size()));
  }

  std::vector<std::pair<std::string, double>> shares;

 private:
  const std::map<std::string, double>& ranges_;
};

}  // namespace

std::vector<std::pair<std::string, double>> clipped_shares(Module& model, const Tensor& x) {
  const NoGrad no_grad;
  const auto ranges = ranges_of(model);
  if (ranges.empty()) return {};
  ClippingWatch watch(ranges);
  const EvaluationMode evaluating(model);
  const RecordScope scope(watch);
  (void)model(Variable(x));
  return std::move(watch.shares);
}

}  // namespace fq::detail
