#pragma once

/// ShardedOptimizer: an optimizer whose state is divided among processes (the first stage of ZeRO:
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

/// Each parameter belongs to one rank, which keeps its state and updates it; the other ranks receive the new
/// value. Parameters and saved state have the bits of `make_optimizer` on one process. A state can be loaded
/// on any number of ranks. Parameters are assigned by size, the largest first, to the rank with the smallest
/// total. A rank keeps at most 1/n of the state and a part of the largest parameter.
///
/// All ranks must make each call, on the same parameters and gradients.
class ShardedOptimizer final : public Optimizer {
 public:
  /// Throws the errors of `make_optimizer`.
  ShardedOptimizer(std::shared_ptr<Communicator> ranks, const Module& model, const OptimizerOptions& options);

  [[nodiscard]] std::string_view type() const noexcept override { return own_->type(); }
  /// Returns the state of all ranks, on the CPU. Each rank holds a full copy.
  [[nodiscard]] StateDict state_dict() const override;
  void load_state(const StateDict& state) override;
  /// Returns the bytes of state that this rank keeps.
  [[nodiscard]] std::int64_t state_bytes() const;

 protected:
  void update(const std::vector<std::size_t>& indices, double gradient_scale) override;

 private:
  std::shared_ptr<Communicator> ranks_;
  std::vector<int> owner_;  // rank of each parameter
  std::unique_ptr<Optimizer> own_;
};

}  // namespace fq
