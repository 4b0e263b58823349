#pragma once

/// ShardedOptimizer: an optimizer whose state several processes share out (the first stage of ZeRO:
/// Rajbhandari et al. 2020).
///
///     ShardedOptimizer optimizer(started_ranks(), model, {.kind = "adamw"});

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "fakequant/train/optimizer.h"
#include "fakequant/train/ranks/communicator.h"

namespace fq {

/// Each parameter belongs to a rank, which keeps its state and steps it; the others take over what it has
/// become. Parameters and saved state have the bits of `make_optimizer` on one process, and a state is loaded
/// on any number of ranks. Parameters are dealt out by their size, the largest first, to whoever has least:
/// a rank keeps 1/n of the state and a part of the largest parameter more at most.
///
/// All ranks make each call, on the same parameters and gradients.
class ShardedOptimizer final : public Optimizer {
 public:
  /// Throws ArgumentError as `make_optimizer`.
  ShardedOptimizer(std::shared_ptr<Communicator> ranks, const Module& model, const OptimizerOptions& options);

  [[nodiscard]] std::string_view type() const noexcept override { return own_->type(); }
  /// That of all ranks, on the CPU; in full on each while it is held.
  [[nodiscard]] StateDict state_dict() const override;
  void load_state(const StateDict& state) override;
  /// Bytes of state that this rank keeps.
  [[nodiscard]] std::int64_t state_bytes() const;

 protected:
  void update(const std::vector<std::size_t>& indices, double gradient_scale) override;

 private:
  std::shared_ptr<Communicator> ranks_;
  std::vector<int> owner_;  // of each parameter
  std::unique_ptr<Optimizer> own_;
};

}  // namespace fq
