#pragma once

/// The codes of activations while a network runs.

#include <map>
#include <set>
#include <string>
#include <vector>

#include "fakequant/core/tensor.h"
#include "fakequant/core/trace.h"
#include "fakequant/export/detail/code_names.h"
#include "fakequant/layers/modules/module.h"

namespace fq::cli {

/// Keeps them in logical order, by their names (CodeNames).
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
  std::set<const fq::detail::Node*> parameters_;  // whose codes do not follow the samples
  fq::detail::CodeNames names_;
  std::map<std::string, std::vector<Tensor>> codes_;
};

}  // namespace fq::cli
