#pragma once

/// The layers of a network in the order in which they run, and what they read: how an architecture is known.

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/layers/modules/module.h"

namespace fq::detail {

/// A layer of the model: what flows into it from others, and what it gives.
struct GgufPart {
  std::string name, type;
  std::set<int> inputs;
  int output = -1;
  double eps = 0;  ///< of a norm
};

/// Those of a model; none where a layer runs twice. Graphs within the network are no layers.
[[nodiscard]] std::vector<GgufPart> gguf_parts(Module& model, const Shape& input_shape);

/// Takes parts in their order, as long as they are those that are expected.
class GgufMatching {
 public:
  explicit GgufMatching(std::vector<GgufPart> parts) : parts_(std::move(parts)) {}

  /// The next part of that kind, which reads just these values; null where it is another.
  const GgufPart* take(std::string_view type, const std::set<int>& inputs);
  const GgufPart* first(std::string_view type) {
    return at_ == 0 && !parts_.empty() ? take(type, parts_[0].inputs) : nullptr;
  }
  [[nodiscard]] bool done() const { return at_ == parts_.size(); }

 private:
  std::vector<GgufPart> parts_;
  std::size_t at_ = 0;
};

/// The shape of a parameter; empty where there is none of that name.
[[nodiscard]] Shape gguf_shape_of(const Module& model, const std::string& name);

}  // namespace fq::detail
