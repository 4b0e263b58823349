#include "fakequant/export/onnx/model.h"

#include <algorithm>

namespace fq {

const OnnxAttribute* OnnxNode::attribute(std::string_view key) const {
  const auto found =
      std::ranges::find(attributes, key, [](const auto& entry) { return std::string_view(entry.first); });
  return found == attributes.end() ? nullptr : &found->second;
}

const OnnxInitializer* OnnxModel::initializer(std::string_view name) const {
  const auto found =
      std::ranges::find(initializers, name, [](const auto& entry) { return std::string_view(entry.name); });
  return found == initializers.end() ? nullptr : &*found;
}

}  // namespace fq
