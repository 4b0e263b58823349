#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "fakequant/core/quantized.h"
#include "fakequant/core/tape.h"
#include "fakequant/core/trace.h"
#include "fakequant/layers/modules/detail/module_scopes.h"
#include "fakequant/layers/modules/quant_modules.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/layers/quantizer/sequential_quantizer.h"
#include "fakequant/train/calibration/calibration_report.h"

namespace fq {
namespace {

constexpr double kClipped = 0.5;  // share of clipped values that is a defect
constexpr double kLost = 0.99;    // share of values other than 0 with code 0 that is a defect
constexpr double kSilent = 1e-3;  // channels below this part of the largest weight are silent
constexpr int kFewBits = 2;

using Kind = QuantizerFinding::Kind;

// Returns whether the quantizer has a range that can be wrong: set before, and not computed from each input.
bool is_static(const TensorQuantizer& q) {
  const auto& d = q.descriptor();
  return q.enabled() && q.quantizing() && d.fake_quant() && d.needs_amax() && !d.has_dynamic_blocks() &&
         q.params().arithmetic == Arithmetic::deployed && q.amax().defined();
}

// The largest range of all channels: a value beyond it is clipped in every channel.
double largest_range(const TensorQuantizer& q) {
  const auto ranges = q.range().used().to_vector<float>();
  return *std::ranges::max_element(ranges);
}

Tensor host(const Tensor& x) { return x.to(Device::cpu()).to(DType::f32); }

/// Statistics of the inputs and codes of a quantizer.
struct Seen {
  float least = HUGE_VALF, most = -HUGE_VALF, lowest = HUGE_VALF, highest = -HUGE_VALF;  // values, codes
  // Values other than 0, and how many of them get code 0.
  std::int64_t clipped = 0, count = 0, numbers = 0, lost = 0;

  void add(const std::vector<float>& values, const std::vector<float>& codes, double range) {
    for (const float v : values) least = std::min(least, v), most = std::max(most, v);
    for (const float q : codes) lowest = std::min(lowest, q), highest = std::max(highest, q);
    for (std::size_t i = 0; i < values.size(); ++i) {
      numbers += static_cast<std::int64_t>(values[i] != 0);
      lost += static_cast<std::int64_t>(values[i] != 0 && codes[i] == 0);
    }
    for (const float v : values) clipped += static_cast<std::int64_t>(std::abs(v) > range);
    count += static_cast<std::int64_t>(values.size());
  }
  [[nodiscard]] double largest() const { return std::max(std::abs(double(least)), std::abs(double(most))); }
  [[nodiscard]] std::optional<Kind> kind() const {
    // One value is always constant.
    if (count <= 1) return std::nullopt;
    if (least == most) return Kind::constant;
    if (double(clipped) > kClipped * double(count)) return Kind::clipped;
    if (lowest == highest || double(lost) > kLost * double(numbers)) return Kind::collapsed;
    return std::nullopt;
  }
};

class Watch : public Recorder {
 public:
  explicit Watch(const std::map<std::string, const TensorQuantizer*>& quantizers) : quantizers_(quantizers) {}

  void record_op(std::string_view op, const std::vector<Variable>& inputs, const Variable& output,
                 Attributes) override {
    // Quantizers are found by the name in the grid, because the operator does not know its module.
    const QuantizedTensor* codes = op == "quantize" ? output.quantized() : nullptr;
    if (codes == nullptr || output.numel() == 0 || !quantizers_.contains(codes->grid.name)) return;
    auto values = host(inputs.at(0).tensor()).to_vector<float>();
    if (codes->grid.format.lower() == 0)  // a pending ReLU
      for (float& v : values) v = std::max(v, 0.0F);
    seen[codes->grid.name].add(values, host(code_values(*codes)).to_vector<float>(),
                               largest_range(*quantizers_.at(codes->grid.name)));
  }

  std::map<std::string, Seen> seen;

 private:
  const std::map<std::string, const TensorQuantizer*>& quantizers_;
};

/// Returns a defect, except for clipping that the best ranges of few bits cause.
std::optional<Kind> fault(const TensorQuantizer& q, const Seen& seen) {
  const auto kind = seen.kind();
  return kind == Kind::clipped && q.descriptor().format().bits() <= kFewBits ? std::nullopt : kind;
}

QuantizerFinding finding(const TensorQuantizer& q, const Seen& seen, std::optional<Kind> kind) {
  const bool lost = kind == Kind::collapsed && seen.lowest != seen.highest;
  return {.quantizer = q.name(),
          .kind = kind.value_or(Kind::collapsed),
          .count = lost                      ? seen.lost
                   : kind == Kind::collapsed ? seen.count
                                             : seen.clipped,
          .of = lost ? seen.numbers : seen.count,
          .amax = largest_range(q),
          .largest = seen.largest()};
}

void run(Module& model, const Tensor& x, Watch& watch) {
  const detail::EvaluationMode evaluating(model);
  const RecordScope scope(watch);
  (void)model(Variable(x));
}

/// Returns the number of channels along `axis` with only code 0, and the number of all channels.
std::pair<std::int64_t, std::int64_t> dead_channels(const Tensor& w, const std::vector<float>& values,
                                                    const std::vector<float>& codes, int axis,
                                                    double largest) {
  const std::int64_t channels = w.shape()[static_cast<std::size_t>(axis)];
  std::int64_t inner = 1, dead = 0;
  for (std::size_t i = std::size_t(axis) + 1; i < w.shape().size(); ++i) inner *= w.shape()[i];
  std::vector<float> most(std::size_t(channels), 0), code(std::size_t(channels), 0);
  for (std::size_t i = 0; i < values.size(); ++i) {
    // w: [.., channels, inner], row-major
    const std::size_t c = (i / std::size_t(inner)) % std::size_t(channels);
    most[c] = std::max(most[c], std::abs(values[i]));
    code[c] = std::max(code[c], std::abs(codes[i]));
  }
  for (std::size_t c = 0; c < code.size(); ++c)
    dead += static_cast<std::int64_t>(code[c] == 0 && most[c] > kSilent * largest);
  return {dead, channels};
}

void look_at_weight(const QuantModule& layer, TensorQuantizer& q, std::vector<QuantizerFinding>& found) {
  const Variable parameter = layer.quantized_weight();
  if (!parameter.defined() || holds_codes(parameter) || parameter.numel() == 0) return;
  const Variable quantized = q.weight(parameter);
  if (quantized.quantized() == nullptr) return;
  const Tensor w = host(parameter.tensor());
  const auto values = w.to_vector<float>(),
             codes = host(code_values(*quantized.quantized())).to_vector<float>();
  Seen seen;
  seen.add(values, codes, largest_range(q));
  if (seen.largest() == 0) return;
  const auto kind = fault(q, seen);
  QuantizerFinding out = finding(q, seen, kind);
  out.of_weight = true;
  // A finding of the whole weight includes its channels.
  if (kind == Kind::collapsed || kind == Kind::clipped) {
    found.push_back(out);
  } else if (layer.weight_axis() >= 0) {
    out.kind = Kind::dead_channels;
    std::tie(out.count, out.of) = dead_channels(w, values, codes, layer.weight_axis(), seen.largest());
    if (out.count > 0) found.push_back(out);
  }
}

}  // namespace

std::string QuantizerFinding::text() const {
  switch (kind) {
    case Kind::zeros:
      return fmt::format("{}: it has seen only zeros, so it has no range and passes floats", quantizer);
    case Kind::constant:
      return fmt::format("{}: its input is {:.6g} everywhere", quantizer, largest);
    case Kind::collapsed:
      return fmt::format("{}: {:.5g} % of its values have one code, its range is {:.6g}", quantizer,
                         100 * double(count) / double(of), amax);
    case Kind::dead_channels:
      return fmt::format("{}: {} of {} channels have no code but 0", quantizer, count, of);
    case Kind::clipped:
      break;
  }
  return fmt::format("{}: {:.0f} % of its values are beyond its range of {:.6g}, they reach {:.6g}",
                     quantizer, 100 * double(count) / double(of), amax, largest);
}

std::vector<QuantizerFinding> quantizer_findings(Module& model, const Tensor& x) {
  const NoGrad no_grad;
  std::vector<QuantizerFinding> found;
  std::set<const TensorQuantizer*> known;
  for (const auto& [path, module] : model.named_modules()) {
    auto* layer = dynamic_cast<QuantModule*>(module);
    TensorQuantizer* q = layer == nullptr ? nullptr : layer->weight_quantizer();
    // Sequences of quantizers have no single range, and shared quantizers are examined once.
    if (q == nullptr || quantizer_parts(*q).size() != 1 || !is_static(*q) || !known.insert(q).second)
      continue;
    look_at_weight(*layer, *q, found);
  }
  if (!x.defined()) return found;
  const auto weights = weight_quantizers(model);
  std::map<std::string, const TensorQuantizer*> activations;
  for (const auto& entry : named_quantizers(model))
    if (!weights.contains(entry.quantizer) && is_static(*entry.quantizer))
      activations.emplace(entry.quantizer->name(), entry.quantizer);
  for (const auto& entry : named_quantizers(model))
    if (!weights.contains(entry.quantizer) && entry.quantizer->params().enabled &&
        entry.quantizer->range().is_zero())
      found.push_back({.quantizer = entry.quantizer->name(), .kind = Kind::zeros});
  // One forward pass with quantization on, in evaluation mode.
  Watch watch(activations);
  run(model, x, watch);
  for (const auto& entry : named_quantizers(model))
    if (const auto seen = watch.seen.find(entry.quantizer->name()); seen != watch.seen.end())
      if (const auto kind = fault(*entry.quantizer, seen->second))
        found.push_back(finding(*entry.quantizer, seen->second, kind));
  return found;
}

}  // namespace fq
