#pragma once

/// Records the codes of activations.

#include <map>
#include <set>
#include <string>
#include <vector>

#include "fakequant/core/tensor.h"
#include "fakequant/core/trace.h"
#include "fakequant/export/detail/code_names.h"
#include "fakequant/layers/modules/module.h"

namespace fq::detail {

/// Keeps codes in logical order by name (CodeNames).
class CodeRecorder : public Recorder {
 public:
  explicit CodeRecorder(Module& model);

  void on_op(std::string_view op, const std::vector<Variable>& inputs, const Variable& output,
             Attributes attributes) override;
  void next_batch() { names_.next_pass(); }
  /// Of all batches since `forget`.
  [[nodiscard]] const std::map<std::string, std::vector<Tensor>>& codes() const noexcept { return codes_; }
  void forget() { codes_.clear(); }

 private:
  std::set<std::string> weights_;
  std::set<const Node*> parameters_;  // whose codes do not follow the samples
  CodeNames names_;
  std::map<std::string, std::vector<Tensor>> codes_;
};

}  // namespace fq::detail
