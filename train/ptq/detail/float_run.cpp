#include "fakequant/train/ptq/detail/float_run.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "fakequant/core/detail/check.h"
#include "fakequant/layers/model/trace.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/train/ranks/shares.h"

namespace fq::ptq {
namespace {

void run_batch(Module& model, const Tensor& x, std::int64_t size, int batch) {
  try {
    // The last batch can have more samples than requested.
    const Tensor part = size < x.dim(0) ? x.slice(0, size) : x;
    (void)model(Variable(part.to(model.device()))).tensor();
  } catch (const NumericError& error) {
    throw NumericError(fmt::format("{}, in batch {}", error.what(), batch));
  }
}

}  // namespace

// Quantizers stay in their slots, so that the pre_quant_scale is still applied.
FloatScope::FloatScope(Module& model) : evaluating_(model) {
  visit_quantizers(model, [&](const NamedQuantizer& entry) {
    auto& q = *entry.quantizer;
    states_.push_back({&q, q.observing(), q.quantizing()});
    q.set_observing(false);
    q.set_quantizing(false);
  });
}

FloatScope::~FloatScope() {
  for (const auto& [q, observing, quantizing] : states_) {
    q->set_observing(observing);
    q->set_quantizing(quantizing);
  }
}

TraceGraph float_graph(Module& model, const Shape& input_shape) {
  const FloatScope float_scope(model);
  return trace(model, input_shape);
}

Shape loader_input_shape(const DataLoader& data) {
  Shape shape = data.data().sample_shape();
  // One sample is enough for a trace.
  shape.insert(shape.begin(), 1);
  return shape;
}

std::shared_ptr<Communicator> ranks_or_one(std::shared_ptr<Communicator> ranks) {
  return ranks ? std::move(ranks) : one_rank();
}

std::int64_t run_batches(Module& model, DataLoader& data, std::int64_t samples, const Communicator& ranks,
                         Recorder* recorder, const std::string& function) {
  fq::detail::check_share(data.options(), ranks, ranks.size(), function);
  FQ_CHECK(samples >= 0, function, "{} samples: use 1 or more, or 0 for all", samples);
  const NoGrad no_grad;
  std::optional<RecordScope> scope;
  if (recorder != nullptr) scope.emplace(*recorder);
  std::int64_t seen = 0;
  data.start_epoch(0);
  for (int batch = 0; auto next = data.next(); ++batch) {
    // Other ranks' batches count, too: all ranks stop at the same sample.
    const std::int64_t size = samples > 0 ? std::min(next->size(), samples - seen) : next->size();
    if (next->passed_over == 0) run_batch(model, next->x, size, batch);
    seen += size;
    if (samples > 0 && seen >= samples) break;
  }
  // Leaves the loader at the start of the epoch for the next pass.
  data.start_epoch(0);
  FQ_CHECK(seen > 0, function, "there is no data: use at least one image");
  return seen;
}

void check_uncalibrated(Module& model, const std::string& function) {
  visit_quantizers(model, [&](const NamedQuantizer& entry) {
    const auto& q = *entry.quantizer;
    const bool chosen = q.descriptor().amax().defined();  // fixed, not calibrated
    FQ_CHECK(!q.params().enabled || !q.amax().defined() || !q.descriptor().needs_amax() || chosen, function,
             "'{}' is already calibrated, but its weights and activations would change: calibrate after this",
             entry.name);
  });
}

}  // namespace fq::ptq
