#include "fakequant/train/calibrate.h"

#include <algorithm>
#include <vector>

#include "fakequant/core/check.h"
#include "fakequant/layers/compress.h"
#include "fakequant/layers/dead_channels.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/layers/sequential_quantizer.h"

namespace fq {
namespace {

/// Sets quantizers to watch only, and back to what they did before.
class Watching {
 public:
  explicit Watching(Module& model) : model_(model), training_(model.training()) {
    for_each_quantizer(model, [&](const NamedQuantizer& entry) {
      auto& q = *entry.quantizer;
      states_.push_back({&q, q.observing(), q.quantizing()});
      q.set_quantizing(false);
    });
    model.eval();
  }
  ~Watching() {
    for (const auto& [q, observing, quantizing] : states_) {
      q->set_observing(observing);
      q->set_quantizing(quantizing);
    }
    model_.train(training_);
  }
  Watching(const Watching&) = delete;  // tied to its block
  Watching& operator=(const Watching&) = delete;

 private:
  struct State {
    TensorQuantizer* quantizer;
    bool observing, quantizing;
  };
  Module& model_;
  bool training_;
  std::vector<State> states_;
};

bool needs_range(const TensorQuantizer& q, bool keep_known) {
  return q.enabled() && q.descriptor().needs_amax() && !q.descriptor().amax().defined() &&
         !(keep_known && q.amax().defined());
}

void set_method(TensorQuantizer& q, const std::string& method) {
  if (method.empty() || method == q.descriptor().calib_method()) return;
  auto options = q.descriptor().options();
  options.calib_method = method;
  q.set_descriptor(QuantDescriptor(std::move(options)));
}

std::vector<TensorQuantizer*> weight_quantizers(Module& model, bool keep_known) {
  std::vector<TensorQuantizer*> out;
  for (auto& [path, module] : model.named_modules()) {
    auto* quant = dynamic_cast<QuantModule*>(module);
    auto* quantizer = quant != nullptr ? quant->weight_quantizer() : nullptr;
    if (quantizer == nullptr) continue;
    for (auto* q : quantizer_parts(*quantizer)) {
      if (!needs_range(*q, keep_known)) continue;
      q->calibrator().reset();
      q->collect(quant->quantized_weight().tensor());
      out.push_back(q);
    }
  }
  return out;
}

std::int64_t watch(Module& model, DataLoader& data, std::int64_t limit) {
  const NoGrad no_grad;
  std::int64_t seen = 0;
  for (int batch = 0; auto next = data.next(); ++batch) {
    Tensor x = next->x;
    if (limit > 0 && seen + x.dim(0) > limit) x = x.slice(0, limit - seen);
    try {
      (void)model(Variable(x)).tensor();
    } catch (const NumericError& error) {
      throw NumericError(fmt::format("{}, in batch {}", error.what(), batch));
    }
    seen += x.dim(0);
    if (limit > 0 && seen >= limit) break;
  }
  return seen;
}

}  // namespace

CalibrationReport calibrate(Module& model, DataLoader& data, const CalibrateOptions& options) {
  FQ_CHECK(options.samples >= 0, "calibrate", "{} samples: use 1 or more, or 0 for all", options.samples);
  check_one_target(model);
  check_not_compressed(model, "calibrate");
  const Watching watching(model);
  auto chosen = weight_quantizers(model, options.keep_known);
  for_each_quantizer(model, [&](const NamedQuantizer& entry) {
    auto& q = *entry.quantizer;
    q.set_observing(false);
    if (!needs_range(q, options.keep_known) || std::ranges::find(chosen, &q) != chosen.end()) return;
    set_method(q, options.method);
    q.calibrator().reset();
    q.set_observing(true);
    chosen.push_back(&q);
  });
  FQ_CHECK(!named_quantizers(model).empty(), "calibrate",
           "the model has no quantizer to calibrate: quantize it first");
  if (chosen.empty()) return {};
  data.start_epoch(0);
  CalibrationReport report{watch(model, data, options.samples), static_cast<int>(chosen.size())};
  data.start_epoch(0);
  FQ_CHECK(report.samples > 0, "calibrate", "there is no data: give at least one image");
  for (auto* q : chosen)
    FQ_CHECK(!q->calibrator().empty(), "calibrate", "'{}' has seen no data: no forward pass reaches it",
             q->name());
  for (auto* q : chosen) q->load_calibrated_amax(options.amax);
  floor_dead_channels(model);
  return report;
}

}  // namespace fq
