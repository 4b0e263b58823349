#include "fakequant/layers/model/model_types.h"

#include <algorithm>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/layers/model/detail/layer_registry.h"

namespace fq {

LayerOptions::LayerOptions(const detail::JsonValue& node, const std::vector<Shape>& inputs,
                           std::int64_t classes, detail::ModelBudget& budget,
                           const detail::EarlierModules* earlier)
    : node_(node), inputs_(inputs), classes_(classes), budget_(budget), earlier_(earlier) {}

bool LayerOptions::has(const std::string& name) const {
  return node_.has("options") && node_.at("options").has(name);
}

bool LayerOptions::is_text(const std::string& name) const {
  return has(name) && node_.at("options").at(name).json().is_string();
}

std::string LayerOptions::text(const std::string& name) const {
  if (!has(name)) fail(fmt::format("the option '{}' is missing: give a text", name));
  return node_.at("options").at(name).string();
}

std::int64_t LayerOptions::integer(const std::string& name, std::int64_t low, std::int64_t high) const {
  if (!has(name))
    fail(fmt::format("the option '{}' is missing: give a whole number from {} to {}", name, low, high));
  return node_.at("options").at(name).integer(low, high);
}

std::int64_t LayerOptions::integer_or(const std::string& name, std::int64_t fallback, std::int64_t low,
                                      std::int64_t high) const {
  return has(name) ? integer(name, low, high) : fallback;
}

std::int64_t LayerOptions::outputs(const std::string& name) const {
  if (!is_text(name)) return integer(name);
  const auto value = node_.at("options").at(name);
  (void)value.choice({"classes"});
  if (classes_ < 1) value.fail(fmt::format("'{}' is \"classes\", whose number is not known here", name));
  return classes_;
}

std::int64_t LayerOptions::inferred(const std::string& name, int axis) const {
  const Shape& input = inputs_.at(0);
  const auto rank = static_cast<int>(input.size());
  const int from_front = axis < 0 ? axis + rank : axis;
  if (from_front < 1 || from_front >= rank)
    fail(fmt::format("the input {} has too few axes to read '{}' from", to_string(input), name));
  const auto actual = input[static_cast<std::size_t>(from_front)];
  if (actual < 1) fail(fmt::format("the input {} is empty", to_string(input)));
  if (has(name) && integer(name) != actual)
    node_.at("options").at(name).fail(fmt::format(
        "'{}' is {}, but the input has {}: leave it out, or give {}", name, integer(name), actual, actual));
  return actual;
}

std::vector<std::int64_t> LayerOptions::sizes(const std::string& name, std::int64_t low, std::int64_t high,
                                              std::size_t most) const {
  if (!has(name)) return {};
  const auto value = node_.at("options").at(name);
  if (!value.is_array()) return {value.integer(low, high)};
  if (value.size() < 1 || value.size() > most)
    value.fail(fmt::format("'{}' has {} sizes: give 1 to {}", name, value.size(), most));
  std::vector<std::int64_t> out;
  for (const auto& element : value.elements()) out.push_back(element.integer(low, high));
  return out;
}

std::array<std::int64_t, 2> LayerOptions::pair_or(const std::string& name, std::int64_t fallback,
                                                  std::int64_t low) const {
  const auto given = sizes(name, low);
  if (given.empty()) return {fallback, fallback};
  if (given.size() > 2)
    node_.at("options").at(name).fail(fmt::format("'{}' has {} sizes: give 1 or 2", name, given.size()));
  return {given.front(), given.back()};
}

double LayerOptions::number(const std::string& name, double low, double high) const {
  if (!has(name))
    fail(fmt::format("the option '{}' is missing: give a number from {} to {}", name, low, high));
  return node_.at("options").at(name).number(low, high);
}

double LayerOptions::number_or(const std::string& name, double fallback, double low, double high) const {
  return has(name) ? number(name, low, high) : fallback;
}

std::vector<double> LayerOptions::numbers(const std::string& name, double low, double high) const {
  const auto value = node_.at("options").at(name);
  if (!value.is_array()) return {value.number(low, high)};
  if (value.size() < 1 || value.size() > 8)
    value.fail(fmt::format("'{}' has {} numbers: give 1 to 8", name, value.size()));
  std::vector<double> out;
  for (const auto& element : value.elements()) out.push_back(element.number(low, high));
  return out;
}

bool LayerOptions::flag_or(const std::string& name, bool fallback) const {
  return has(name) ? node_.at("options").at(name).boolean() : fallback;
}

Variable LayerOptions::weight_of(const std::string& name) const {
  constexpr std::string_view kWeight = ".weight";
  const std::string wanted = text(name);
  std::vector<std::string> known;
  if (earlier_ != nullptr)
    for (const auto& [node, module] : *earlier_)
      for (const auto& [parameter, value] : module->named_parameters()) {
        const std::string path = node + "." + parameter;
        if (!path.ends_with(kWeight)) continue;
        known.push_back(path.substr(0, path.size() - kWeight.size()));
        if (known.back() == wanted) return value;
      }
  node_.at("options").at(name).fail(fmt::format("'{}' is no earlier layer with a weight{}",
                                                wanted.substr(0, 80),
                                                detail::did_you_mean(wanted.substr(0, 80), known)));
}

std::string LayerOptions::choice_or(const std::string& name, const std::string& fallback,
                                    const std::vector<std::string>& allowed) const {
  return has(name) ? node_.at("options").at(name).choice(allowed) : fallback;
}

void LayerOptions::reserve(const Shape& parameter) const {
  std::int64_t left = budget_.limit - budget_.used;
  for (const auto size : parameter) left = size > 0 ? left / size : left;
  if (left < 1)
    fail(fmt::format(
        "parameters of shape {}, after {} elements in the layers before: a model may have {} in all",
        to_string(parameter), budget_.used, budget_.limit));
  budget_.used += numel(parameter);
}

void LayerOptions::fail(const std::string& message) const { node_.fail(message); }

void register_layer_type(const std::string& type, std::vector<std::string> options, LayerFactory make) {
  FQ_CHECK(!type.empty() && make, "register_layer_type", "'{}': give a name and a factory", type);
  detail::layer_registry()[type] = {std::move(options), std::move(make)};
}

std::vector<std::string> layer_types() {
  std::vector<std::string> names{"graph", "sequential"};
  for (const auto& [name, type] : detail::layer_registry()) names.push_back(name);
  std::ranges::sort(names);
  return names;
}

namespace detail {

LayerRegistry& layer_registry() {
  static LayerRegistry registry = standard_layer_types();
  return registry;
}

}  // namespace detail
}  // namespace fq
