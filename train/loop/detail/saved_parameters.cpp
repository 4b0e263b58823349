#include "fakequant/train/loop/detail/saved_parameters.h"

#include <unordered_set>

#include "fakequant/layers/modules/module.h"

namespace fq::detail {

std::vector<std::pair<std::string, Variable>> saved_parameters(const Module& model) {
  std::vector<std::pair<std::string, Variable>> out;
  std::unordered_set<const void*> known;
  for (auto& [name, value] : model.named_parameters()) {
    const bool first = known.insert(value.node().get()).second;
    if (first || name.ends_with(".amax")) out.emplace_back(name, value);
  }
  return out;
}

}  // namespace fq::detail
