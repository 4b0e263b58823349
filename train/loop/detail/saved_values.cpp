#include "fakequant/train/loop/detail/saved_values.h"

#include <nlohmann/json.hpp>
#include <unordered_set>

#include "fakequant/layers/modules/module.h"
#include "fakequant/train/loop/average.h"

namespace fq::detail {
namespace {

/// Sets a learned range with its quantizer: a checkpoint holds it there and as a parameter.
void put_range(const std::string& parameter, const Tensor& value, StateDict& state) {
  constexpr std::string_view kGroup = "parameters/", kName = ".amax";
  if (!parameter.starts_with(kGroup) || !parameter.ends_with(kName)) return;
  const auto length = parameter.size() - kGroup.size() - kName.size();
  const std::string range = "quantizers/" + parameter.substr(kGroup.size(), length) + "/amax";
  if (state.contains(range)) state.set(range, value);
}

}  // namespace

std::vector<std::pair<std::string, Variable>> saved_parameters(const Module& model) {
  std::vector<std::pair<std::string, Variable>> out;
  std::unordered_set<const void*> known;
  for (auto& [name, value] : model.named_parameters()) {
    const bool first = known.insert(value.node().get()).second;
    if (first || name.ends_with(".amax")) out.emplace_back(name, value);
  }
  return out;
}

void put_average(const WeightAverage& average, StateDict& checkpoint) {
  const StateDict others = average.state_dict();
  StateDict aside;
  for (const auto& [name, other] : others.tensors()) {
    // `others` are the values that the model does not hold: the live ones if swapped, else the averages.
    aside.set(name, average.swapped() ? other : checkpoint.at(name));
    if (average.swapped()) continue;
    checkpoint.set(name, other);
    put_range(name, other, checkpoint);
  }
  aside.set_attribute("updates", others.attribute("updates"));
  checkpoint.merge(aside, "average");
}

StateDict take_average(StateDict& checkpoint) {
  StateDict averages;
  const StateDict aside = checkpoint.sub("average");
  for (const auto& [name, live] : aside.tensors()) {
    averages.set(name, checkpoint.at(name));
    checkpoint.set(name, live);
  }
  averages.set_attribute("updates", aside.attribute("updates"));
  return averages;
}

}  // namespace fq::detail
