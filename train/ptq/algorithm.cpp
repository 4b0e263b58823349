#include <algorithm>
#include <utility>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/placed_error.h"
#include "fakequant/layers/modules/detail/module_scopes.h"
#include "fakequant/train/ptq/algorithms.h"
#include "fakequant/train/ptq/detail/algorithm_entry.h"

namespace fq::ptq {
namespace {

struct NamedEntry {
  std::string_view name;
  AlgorithmEntry (*entry)();
};

constexpr NamedEntry kAlgorithms[]{
#define FQ_WEIGHT_ALGORITHM(name) {#name, name##_entry},
#include "fakequant/layers/config/detail/weight_algorithms.def"
};

AlgorithmEntry entry_of(const std::string& name) {
  if (name.empty()) return {};
  const auto* found = std::ranges::find(kAlgorithms, name, &NamedEntry::name);
  FQ_CHECK(found != std::end(kAlgorithms), "quantize", "the algorithm '{}' is not known here", name);
  return found->entry();
}

Report run(AlgorithmStep step, Module& model, DataLoader& data, AlgorithmOptions options,
           std::shared_ptr<Communicator> ranks) {
  if (step == nullptr) return {};
  options.share_out(std::move(ranks));
  const detail::OnHost host(model);
  return step(model, data, options);
}

}  // namespace

Algorithm::Algorithm(const QuantConfig& config, std::int64_t samples)
    : name_(config.weight_algorithm), entry_(std::make_shared<const AlgorithmEntry>(entry_of(name_))) {
  detail::at_place(config.weight_place, [&] {
    options_ = std::make_shared<const AlgorithmOptions>(name_, entry_->options, config.weight_options.get(),
                                                        samples);
  });
}

bool Algorithm::runs_before() const noexcept { return entry_->before != nullptr; }

Report Algorithm::before(Module& model, DataLoader& data, std::shared_ptr<Communicator> ranks) const {
  return run(entry_->before, model, data, *options_, std::move(ranks));
}

Report Algorithm::after(Module& model, DataLoader& data, std::shared_ptr<Communicator> ranks) const {
  return run(entry_->after, model, data, *options_, std::move(ranks));
}

}  // namespace fq::ptq
