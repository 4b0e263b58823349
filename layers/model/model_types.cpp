#include "fakequant/layers/model/model_types.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <type_traits>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/layers/model/detail/layer_registry.h"
#include "fakequant/layers/model/detail/model_text.h"

namespace fq {

namespace {

// Text of an option for messages, shortened to one line.
std::string shown(const NodeOption& option) {
  const auto value = detail::option_json(option);
  const auto text = value.is_array() ? "a list" : value.dump();
  return text.size() <= 60 ? text : text.substr(0, 57) + "..";
}

std::string option_pointer(const std::string& name) { return "/options/" + detail::json_pointer_token(name); }

std::string whole_range(std::int64_t low, std::int64_t high) {
  return fmt::format("a whole number from {} to {}", low, high);
}

/// Throws that an option, or element `element` of its list, has another type or value than `expected`.
[[noreturn]] void fail_type(const ModelNode& node, const std::string& name, const NodeOption& value,
                            std::string_view expected, std::ptrdiff_t element = -1) {
  const std::string within = element < 0 ? "" : std::to_string(element);
  node.place.fail(fmt::format("'{}': {} is not {}", element < 0 ? detail::shortened(name) : within,
                              shown(value), expected),
                  option_pointer(name) + (element < 0 ? "" : "/" + within));
}

template <class T>
// The option must exist: callers check `has` first.
const T& get(const ModelNode& node, const std::string& name, std::string_view expected) {
  const NodeOption& option = *node.options.find(name);
  const T* value = std::get_if<T>(&option);
  if (value == nullptr) fail_type(node, name, option, expected);
  return *value;
}

/// Returns the elements of a list of either type as T.
template <class T>
std::optional<std::vector<T>> elements(const NodeOption& option) {
  if (const auto* whole = std::get_if<std::vector<std::int64_t>>(&option))
    return std::vector<T>(whole->begin(), whole->end());
  if constexpr (std::is_same_v<T, double>)
    if (const auto* numbers = std::get_if<std::vector<double>>(&option)) return *numbers;
  return std::nullopt;
}

double checked_number(const ModelNode& node, const std::string& name, double low, double high) {
  const NodeOption& option = *node.options.find(name);
  const auto* whole = std::get_if<std::int64_t>(&option);
  const auto* number = std::get_if<double>(&option);
  const double value = whole != nullptr ? static_cast<double>(*whole) : number != nullptr ? *number : NAN;
  // Negated, so that NaN fails too.
  if (!(value >= low && value <= high))
    fail_type(node, name, option, fmt::format("a number from {} to {}", low, high));
  return value;
}

}  // namespace

LayerOptions::LayerOptions(const ModelNode& node, const std::vector<Shape>& inputs, std::int64_t classes,
                           detail::ModelBudget& budget, const detail::EarlierModules* earlier)
    : node_(node), inputs_(inputs), classes_(classes), budget_(budget), earlier_(earlier) {}

bool LayerOptions::has(const std::string& name) const { return node_.options.find(name) != nullptr; }

bool LayerOptions::is_text(const std::string& name) const {
  return has(name) && std::holds_alternative<std::string>(*node_.options.find(name));
}

std::string LayerOptions::text(const std::string& name) const {
  if (!has(name)) fail(fmt::format("the option '{}' is missing: use a text", name));
  return get<std::string>(node_, name, "a text in quotes");
}

std::int64_t LayerOptions::integer(const std::string& name, std::int64_t low, std::int64_t high) const {
  if (!has(name))
    fail(fmt::format("the option '{}' is missing: use a whole number from {} to {}", name, low, high));
  const std::int64_t value = get<std::int64_t>(node_, name, whole_range(low, high));
  if (value < low || value > high) fail_type(node_, name, value, whole_range(low, high));
  return value;
}

std::int64_t LayerOptions::integer_or(const std::string& name, std::int64_t fallback, std::int64_t low,
                                      std::int64_t high) const {
  return has(name) ? integer(name, low, high) : fallback;
}

std::int64_t LayerOptions::outputs(const std::string& name) const {
  // A number, or "classes": the number of classes of the data.
  if (!is_text(name)) return integer(name);
  (void)choice_or(name, {}, {"classes"});
  if (classes_ < 1)
    fail_option(name, fmt::format("'{}' is \"classes\", whose number is not known here", name));
  return classes_;
}

std::int64_t LayerOptions::inferred(const std::string& name, int axis) const {
  const Shape& input = inputs_.at(0);
  const auto rank = static_cast<int>(input.size());
  const int from_front = axis < 0 ? axis + rank : axis;
  // Axis 0 is the batch and cannot be a number of features.
  if (from_front < 1 || from_front >= rank)
    fail(fmt::format("the input {} has too few axes to read '{}' from", to_string(input), name));
  const auto actual = input[static_cast<std::size_t>(from_front)];
  if (actual < 1) fail(fmt::format("the input {} is empty", to_string(input)));
  if (has(name) && integer(name) != actual)
    fail_option(name, fmt::format("'{}' is {}, but the input has {}: leave it out, or give {}", name,
                                  integer(name), actual, actual));
  return actual;
}

std::vector<std::int64_t> LayerOptions::sizes(const std::string& name, std::int64_t low, std::int64_t high,
                                              std::size_t most) const {
  const NodeOption* option = node_.options.find(name);
  if (option == nullptr) return {};
  // As doubles first, because a list with fractions is not a single number either.
  const auto numbers = elements<double>(*option);
  if (!numbers) return {integer(name, low, high)};
  if (numbers->empty() || numbers->size() > most)
    fail_option(name, fmt::format("'{}' has {} sizes: use 1 to {}", name, numbers->size(), most));
  const auto out = elements<std::int64_t>(*option);
  const auto is_wrong = [&](std::int64_t size) { return size < low || size > high; };
  // A list with a double: the message names the first fraction, or the first element if there is no fraction
  // (2.0).
  if (!out) {
    const auto wrong = std::ranges::find_if(*numbers, [](double x) { return x != std::floor(x); });
    const auto at = wrong == numbers->end() ? 0 : wrong - numbers->begin();
    fail_type(node_, name, (*numbers)[std::size_t(at)], whole_range(low, high), at);
  }
  if (const auto wrong = std::ranges::find_if(*out, is_wrong); wrong != out->end())
    fail_type(node_, name, *wrong, whole_range(low, high), wrong - out->begin());
  return *out;
}

std::array<std::int64_t, 2> LayerOptions::pair_or(const std::string& name, std::int64_t fallback,
                                                  std::int64_t low) const {
  const auto given = sizes(name, low);
  if (given.empty()) return {fallback, fallback};
  if (given.size() > 2) fail_option(name, fmt::format("'{}' has {} sizes: use 1 or 2", name, given.size()));
  return {given.front(), given.back()};
}

double LayerOptions::number(const std::string& name, double low, double high) const {
  if (!has(name))
    fail(fmt::format("the option '{}' is missing: use a number from {} to {}", name, low, high));
  return checked_number(node_, name, low, high);
}

double LayerOptions::number_or(const std::string& name, double fallback, double low, double high) const {
  return has(name) ? number(name, low, high) : fallback;
}

std::vector<double> LayerOptions::numbers(const std::string& name, double low, double high) const {
  const NodeOption* option = node_.options.find(name);
  if (option == nullptr) fail(fmt::format("the option '{}' is missing: use 1 to 8 numbers", name));
  const auto out = elements<double>(*option);
  if (!out) return {number(name, low, high)};
  if (out->empty() || out->size() > 8)
    fail_option(name, fmt::format("'{}' has {} numbers: use 1 to 8", name, out->size()));
  const auto is_wrong = [&](double x) { return !(x >= low && x <= high); };
  if (const auto wrong = std::ranges::find_if(*out, is_wrong); wrong != out->end())
    fail_type(node_, name, *wrong, fmt::format("a number from {} to {}", low, high), wrong - out->begin());
  return *out;
}

bool LayerOptions::flag_or(const std::string& name, bool fallback) const {
  return has(name) ? get<bool>(node_, name, "true or false") : fallback;
}

Variable LayerOptions::tied_weight(const std::string& name) const {
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
  fail_option(name, fmt::format("'{}' is no earlier layer with a weight{}", wanted.substr(0, 80),
                                detail::did_you_mean(wanted.substr(0, 80), known)));
}

std::string LayerOptions::choice_or(const std::string& name, const std::string& fallback,
                                    const std::vector<std::string>& allowed) const {
  if (!has(name)) return fallback;
  const std::string given = text(name);
  if (std::ranges::find(allowed, given) != allowed.end()) return given;
  const std::string shown = detail::shortened(given);
  fail_option(name, fmt::format("unknown {} '{}'{}", name, shown, detail::did_you_mean(shown, allowed)));
}

void LayerOptions::reserve(const Shape& parameter) const {
  // Divides the budget by each size, because the product of the sizes may overflow.
  std::int64_t left = budget_.limit - budget_.used;
  for (const auto size : parameter) left = size > 0 ? left / size : left;
  if (left < 1)
    fail(fmt::format(
        "parameters of shape {}, after {} elements in the layers before: a model may have {} in all",
        to_string(parameter), budget_.used, budget_.limit));
  budget_.used += numel(parameter);
}

void LayerOptions::fail(const std::string& message) const { node_.place.fail(message); }

void LayerOptions::fail_option(const std::string& name, const std::string& message) const {
  node_.place.fail(message, option_pointer(name));
}

void register_layer_type(const std::string& type, std::vector<std::string> options, LayerFactory make) {
  FQ_CHECK(!type.empty() && make, "register_layer_type", "'{}': use a name and a factory", type);
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
