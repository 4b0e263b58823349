#pragma once

/// The layers of a network in order of execution, with their inputs. The exporter recognizes architectures by
/// them.

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/layers/modules/module.h"

namespace fq::detail {

/// A layer of the model, with numbers of its inputs and its output.
struct GgufPart {
  std::string name, type;
  std::set<int> inputs;
  int output = -1;
  double eps = 0;  ///< of a norm
};

/// Returns the layers of a model, or an empty list if a layer runs twice. Nested graphs do not count as
/// layers.
[[nodiscard]] std::vector<GgufPart> gguf_parts(Module& model, const Shape& input_shape);

/// Matches layers in order.
class GgufMatching {
 public:
  explicit GgufMatching(std::vector<GgufPart> parts) : parts_(std::move(parts)) {}

  /// Returns the next layer if it has that type and exactly these inputs, else null.
  const GgufPart* take(std::string_view type, const std::set<int>& inputs);
  const GgufPart* first(std::string_view type) {
    return at_ == 0 && !parts_.empty() ? take(type, parts_[0].inputs) : nullptr;
  }
  [[nodiscard]] bool done() const { return at_ == parts_.size(); }

 private:
  std::vector<GgufPart> parts_;
  std::size_t at_ = 0;
};

/// Returns the shape of a parameter. Empty if the name is unknown.
[[nodiscard]] Shape gguf_shape(const Module& model, const std::string& name);

}  // namespace fq::detail
