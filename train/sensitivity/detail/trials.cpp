#include "fakequant/train/sensitivity/detail/trials.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/ops/loss.h"
#include "fakequant/layers/modules/detail/call_cache.h"
#include "fakequant/train/loop/detail/evaluation.h"
#include "fakequant/train/ranks/detail/collectives.h"

namespace fq::detail {
namespace {

/// Returns log probabilities as f64, on the host.
Tensor log_probabilities(const Variable& logits) {
  return ops::log_softmax(logits.as_float()).tensor().to(Device::cpu()).to(DType::f64);
}

/// Sums over the outputs for all batches so far.
struct TrialSums {
  ScoreSum score;
  double divergence = 0;

  void add(const Variable& logits, const Tensor& log_p, const Tensor& labels) {
    // Adds up as `evaluate` does, so that loss and accuracy have the same bits.
    if (labels.defined()) score.add(logits, labels);
    const Tensor log_q = log_probabilities(logits);
    // Kullback-Leibler divergence from the float output p to the trial's output q: sum p (log p - log q).
    const double *p = log_p.data<double>(), *q = log_q.data<double>();
    for (std::int64_t i = 0; i < log_p.numel(); ++i) divergence += std::exp(p[i]) * (p[i] - q[i]);
  }
};

bool all_finite(const Tensor& values) {
  // Token ids are always finite.
  if (values.dtype() != DType::f32) return true;
  const Tensor x = values.to(Device::cpu());
  const float* begin = x.data<float>(x.layout());
  return std::all_of(begin, begin + x.numel(), [](float v) { return std::isfinite(v); });
}

void check_batch(const Tensor& x, int batch, const std::string& function, const char* what) {
  if (all_finite(x)) return;
  throw NumericError(
      fmt::format("[{}] {} of batch {} has a NaN or an infinity: use finite data", function, what, batch));
}

/// Finds the modules that contain one of several slots.
class Holders {
 public:
  explicit Holders(Module& model) {
    for (auto& [path, module] : model.named_modules()) {
      auto& slots = below_.emplace_back(module, std::unordered_set<const Slot*>{}).second;
      for (const auto& [name, slot] : module->named_slots()) slots.insert(slot.get());
    }
  }
  [[nodiscard]] std::unordered_set<const Module*> of(const Swaps& swaps) const {
    std::unordered_set<const Module*> out;
    for (const auto& [module, slots] : below_)
      if (std::ranges::any_of(
              swaps, [&below = slots](const auto& swap) { return below.contains(swap.first.get()); }))
        out.insert(module);
    return out;
  }

 private:
  std::vector<std::pair<const Module*, std::unordered_set<const Slot*>>> below_;
};

class TrialRun {
 public:
  TrialRun(Module& model, const std::vector<Swaps>& trials, const TrialOptions& options)
      : model_(model), trials_(trials), options_(options), cache_(options.counted), sums_(trials.size()) {
    const Holders holders(model);
    for (const auto& trial : trials) changed_.push_back(holders.of(trial));
  }

  void run_batch(const Tensor& x, const Tensor& y, int batch) {
    check_batch(x, batch, options_.function, "the data");
    const CallCacheScope caching(cache_);
    // Stores the calls of the reference pass; trials look up all modules that do not contain a change.
    cache_.keep();
    if (!options_.cached) cache_.pass();
    const std::int64_t before = cache_.computed();
    const Variable logits = model_(Variable(x));
    report_.pass_runs += cache_.computed() - before;
    check_batch(logits.tensor(), batch, options_.function, "the output in float");
    const Tensor log_p = log_probabilities(logits);
    if (y.defined()) reference_.add(logits, y);
    // Batch by batch, so that the cache holds the values of one batch.
    for (std::size_t i = 0; i < trials_.size(); ++i) run_trial(i, x, y, log_p);
    report_.samples += x.dim(0);
    labelled_ = labelled_ && y.defined();
  }

  [[nodiscard]] TrialReport report() {
    report_.reference = reference_.mean();
    report_.runs = cache_.computed();
    for (const auto& sums : sums_) report_.damages.push_back(damage(sums));
    return report_;
  }

 private:
  void run_trial(std::size_t i, const Tensor& x, const Tensor& y, const Tensor& log_p) {
    const SwapScope swapped(trials_[i]);
    if (options_.cached) cache_.look_up(changed_[i]);
    sums_[i].add(model_(Variable(x)), log_p, y);
  }

  [[nodiscard]] Damage damage(const TrialSums& sums) const {
    const double none = std::numeric_limits<double>::quiet_NaN();
    Damage out{none, none, sums.divergence / static_cast<double>(report_.samples)};
    if (!labelled_) return out;
    const Evaluation own = sums.score.mean();
    out.loss_change = own.loss - report_.reference.loss;
    out.accuracy_change = own.accuracy - report_.reference.accuracy;
    return out;
  }

  Module& model_;
  const std::vector<Swaps>& trials_;
  const TrialOptions& options_;
  CallCache cache_;
  std::vector<std::unordered_set<const Module*>> changed_;
  ScoreSum reference_;
  std::vector<TrialSums> sums_;
  TrialReport report_;
  bool labelled_ = true;
};

TrialReport run_all(Module& model, DataLoader& data, const std::vector<Swaps>& trials,
                    const TrialOptions& options) {
  FQ_CHECK(options.samples >= 0, options.function, "{} samples: use 1 or more, or 0 for all",
           options.samples);
  const NoGrad no_grad;
  TrialRun run(model, trials, options);
  std::int64_t seen = 0;
  data.start_epoch(0);
  for (int batch = 0; auto next = data.next(); ++batch) {
    Tensor x = next->x, y = next->y;
    if (const std::int64_t left = options.samples - seen; options.samples > 0 && x.dim(0) > left) {
      x = x.slice(0, left);
      if (y.defined()) y = y.slice(0, left);
    }
    run.run_batch(x.to(model.device()), y, batch);
    seen += x.dim(0);
    if (options.samples > 0 && seen >= options.samples) break;
  }
  data.start_epoch(0);
  FQ_CHECK(seen > 0, options.function, "there is no data: use at least one image");
  return run.report();
}

StateDict to_state(const TrialReport& report) {
  Tensor damages = Tensor::empty({std::ssize(report.damages), 3}, DType::f64);
  auto* number = damages.mutable_data<double>();
  for (const auto& d : report.damages)
    for (const double value : {d.loss_change, d.accuracy_change, d.divergence}) *number++ = value;
  StateDict out;
  out.set("damages", damages);
  out.set_attribute("runs", report.runs);
  return out;
}

Damage unpack_damage(const StateDict& state, std::size_t i) {
  const auto* numbers = state.at("damages").data<double>() + 3 * i;
  return {numbers[0], numbers[1], numbers[2]};
}

}  // namespace

SwapScope::SwapScope(const Swaps& swaps) {
  for (const auto& [slot, module] : swaps) {
    before_.emplace_back(slot, slot->module);
    slot->module = module;
  }
}

SwapScope::~SwapScope() {
  // In reverse order, because a slot can occur twice.
  for (auto swap = before_.rbegin(); swap != before_.rend(); ++swap) swap->first->module = swap->second;
}

TrialReport run_trials(Module& model, DataLoader& data, const std::vector<Swaps>& trials,
                       const TrialOptions& options) {
  const std::size_t size = options.ranks == nullptr ? 1 : static_cast<std::size_t>(options.ranks->size());
  if (size == 1) return run_all(model, data, trials, options);
  std::vector<Swaps> own;
  // Trials are independent. Each rank runs every size-th trial on all batches, which gives the bits of one
  // process.
  for (auto i = static_cast<std::size_t>(options.ranks->rank()); i < trials.size(); i += size)
    own.push_back(trials[i]);
  TrialReport out = run_all(model, data, own, options);
  const auto all = gather_states(*options.ranks, to_state(out));
  out.runs = -static_cast<std::int64_t>(size - 1) * out.pass_runs;  // each rank ran the passes of the model
  for (const auto& state : all) out.runs += whole_value<std::int64_t>(state.attribute("runs"));
  out.damages.clear();
  for (std::size_t i = 0; i < trials.size(); ++i)
    out.damages.push_back(unpack_damage(all[i % size], i / size));
  return out;
}

}  // namespace fq::detail
