#pragma once

/// Linear layers while a network runs, for engines that are compared layer by layer.

#include <cstdint>

#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/trace.h"

namespace fq::cli {

/// Keeps what each linear layer read and gave, in the order in which they ran: "layers/0003 block1.fc1/x" and
/// "/y", f32 in logical order; with "/bias" where there is one and, of a layer whose engine rounds its rows
/// as it runs, "/codes" [N, K] and "/scale", f32 in the shape of its blocks.
class LayerRecorder : public Recorder {
 public:
  void on_op(std::string_view op, const std::vector<Variable>& inputs, const Variable& output,
             Attributes attributes) override;
  [[nodiscard]] const StateDict& layers() const noexcept { return layers_; }
  /// The number of layers.
  [[nodiscard]] std::int64_t count() const noexcept { return count_; }

 private:
  StateDict layers_;
  std::int64_t count_ = 0;
};

}  // namespace fq::cli
