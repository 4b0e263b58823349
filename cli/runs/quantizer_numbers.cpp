#include "fakequant/cli/runs/quantizer_numbers.h"

#include <algorithm>
#include <set>

#include "fakequant/export/scales.h"
#include "fakequant/layers/modules/detail/module_scopes.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/train/data/some_samples.h"

namespace fq::cli {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kClipSamples = 64;

/// Kinds of work by what people call them.
std::string phase_of(const std::string& kind) {
  if (kind == "loader") return "waiting for data";
  if (kind == "dX" || kind == "dW" || kind.ends_with(" backward")) return "backward";
  if (kind == "quantize" || kind == "optimizer" || kind == "other") return kind;
  return "forward";
}

ClipCounts clips_of(Module& model, const Tensor& x) {
  const NoGrad no_grad;
  const fq::detail::EvaluationMode evaluating(model);
  ClipCounter counter(model);
  const RecordScope scope(counter);
  (void)model(Variable(x));
  return counter.counts();
}

}  // namespace

ordered_json phases_of(const Profile& profile) {
  ordered_json out = ordered_json::object();
  for (const auto& row : profile.rows) {
    const std::string phase = phase_of(row.kind);
    out[phase] = out.value(phase, 0.0) + row.milliseconds;
  }
  return out;
}

Tensor some_inputs(const Run& run) {
  if (!run.network.quantized()) return {};
  DataLoader loader(some_samples(run.data, kClipSamples, 0), {.batch_size = kClipSamples, .shuffle = false});
  const auto batch = loader.next();
  return batch ? batch->x.to(run.network.module().device()) : Tensor();
}

ordered_json quantizers_of(Module& model, const Tensor& x) {
  ordered_json out = ordered_json::object();
  const auto of_weights = weight_quantizers(model);
  std::set<std::string> weights;
  for (const auto& entry : named_quantizers(model)) {
    if (of_weights.contains(entry.quantizer)) weights.insert(entry.name);
    const Tensor amax = entry.quantizer->amax();
    if (!entry.quantizer->params().enabled || !amax.defined()) continue;
    const auto values = amax.to_vector<float>();
    if (!values.empty()) out[entry.name] = {{"amax", *std::ranges::max_element(values)}};
  }
  if (!x.defined() || !uncalibrated_quantizers(model).empty()) return out;
  for (const auto& [name, clips] : clips_of(model, x))
    if (clips.count > 0 && out.contains(name) && !weights.contains(name))
      out[name]["clipped"] = static_cast<double>(clips.clipped) / static_cast<double>(clips.count);
  return out;
}

}  // namespace fq::cli
