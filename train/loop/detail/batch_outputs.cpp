#include "fakequant/train/loop/detail/batch_outputs.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "fakequant/core/error.h"
#include "fakequant/layers/modules/detail/module_scopes.h"
#include "fakequant/train/loop/detail/finite.h"
#include "fakequant/train/ranks/detail/gather_states.h"
#include "fakequant/train/ranks/shares.h"

namespace fq::detail {
namespace {

Tensor output_of(Module& model, const Batch& batch) try {
  return model(Variable(batch.x.to(model.device()))).tensor();
} catch (const NumericError& error) {
  const std::string found = not_finite_sample(batch);
  if (found.empty()) throw;
  throw NumericError(fmt::format("{}: {}", error.what(), found));
}

/// The next batches, at most one of each rank, in their order.
std::vector<StateDict> next_turn(Module& model, DataLoader& loader, Communicator& ranks, std::int64_t count) {
  StateDict own;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto batch = loader.next();
    if (batch->passed_over > 0) continue;
    own.set("output", output_of(model, *batch));
    if (batch->y.defined()) own.set("labels", batch->y);
  }
  auto all = gather_states(ranks, own);
  all.resize(static_cast<std::size_t>(count));
  return all;
}

bool visit_shared(Module& model, DataLoader& loader, Communicator& ranks, const VisitOutput& visit) {
  check_share(loader.options(), ranks, ranks.size(), "evaluate");
  const std::int64_t size = ranks.size(), batches = loader.batches_per_epoch();
  for (std::int64_t done = 0; done < batches; done += size) {
    std::vector<std::int64_t> stops{0};
    for (const auto& found : next_turn(model, loader, ranks, std::min(size, batches - done)))
      if (!visit(found.at("output"), found.contains("labels") ? found.at("labels") : Tensor())) stops[0] = 1;
    ranks.max(stops);
    if (stops[0] != 0) return false;
  }
  return true;
}

}  // namespace

bool for_each_output(Module& model, DataLoader& loader, Communicator* ranks, const VisitOutput& visit) {
  const EvaluationMode mode(model);
  const NoGrad no_grad;
  loader.start_epoch(0);
  if (ranks != nullptr && ranks->size() > 1) return visit_shared(model, loader, *ranks, visit);
  while (const auto batch = loader.next())
    if (!visit(output_of(model, *batch), batch->y)) return false;
  return true;
}

}  // namespace fq::detail
