#pragma once

/// The codes of activations while a network runs.

#include <map>
#include <set>
#include <string>
#include <vector>

#include "fakequant/core/tensor.h"
#include "fakequant/core/trace.h"
#include "fakequant/layers/module.h"

namespace fq::cli {

/// Keeps them in logical order, by quantizer. A quantizer that serves several tensors names the first; the
/// others have the path of their reader, one of its aliases.
class CodeRecorder : public Recorder {
 public:
  explicit CodeRecorder(Module& model);

  void on_op(std::string_view op, const std::vector<Variable>& inputs, const Variable& output,
             Attributes attributes) override;
  void next_batch() { seen_.clear(); }
  /// Of all batches since `forget`.
  [[nodiscard]] const std::map<std::string, std::vector<Tensor>>& codes() const noexcept { return codes_; }
  void forget() { codes_.clear(); }

 private:
  std::set<std::string> weights_, seen_;
  std::map<std::string, std::vector<Tensor>> codes_;
};

}  // namespace fq::cli
