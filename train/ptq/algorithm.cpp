#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/placed_error.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/layers/modules/detail/module_scopes.h"
#include "fakequant/train/ptq/algorithms.h"
#include "fakequant/train/ptq/detail/algorithm_entry.h"

namespace fq::ptq {
namespace {

constexpr int kMostCount = 1000000;

std::vector<std::string> option_names(const std::vector<AlgorithmOption>& options) {
  std::vector<std::string> out;
  for (const auto& option : options)
    for (const auto& name : {option.name, option.alias})
      if (!name.empty()) out.push_back(name);
  return out;
}

// Returns the option with this name or alias.
const AlgorithmOption& option_named(const std::string& key, const std::string& algorithm,
                                    const std::vector<AlgorithmOption>& known) {
  const auto option = std::ranges::find_if(
      known, [&](const AlgorithmOption& o) { return key == o.name || (!key.empty() && key == o.alias); });
  FQ_CHECK(option != known.end(), "quantize", "'{}' is not an option of {}{}", key, algorithm,
           detail::did_you_mean(key, option_names(known)));
  return *option;
}

double read(const std::string& algorithm, const std::string& key, OptionType type,
            const nlohmann::json& value) {
  if (type == OptionType::flag) {
    FQ_CHECK(value.is_boolean(), "quantize", "'{}' of {} is {}: use true or false", key, algorithm,
             value.dump());
    return value.get<bool>() ? 1 : 0;
  }
  // All options are stored as doubles; counts up to kMostCount are exact.
  FQ_CHECK(type != OptionType::count || (value.is_number_integer() && value >= 1 && value <= kMostCount),
           "quantize", "'{}' of {} is {}: use a whole number from 1 to {}", key, algorithm, value.dump(),
           kMostCount);
  FQ_CHECK(value.is_number(), "quantize", "'{}' of {} is {}: use a number", key, algorithm, value.dump());
  return value.get<double>();
}

struct NamedEntry {
  std::string_view name;
  AlgorithmEntry (*entry)();
};

// The names and functions come from the list in layers/config, which checks configs.
constexpr NamedEntry kAlgorithms[]{
#define FQ_WEIGHT_ALGORITHM(name) {#name, name##_entry},
#include "fakequant/layers/config/detail/weight_algorithms.def"
};

AlgorithmEntry find_entry(const std::string& name) {
  // Without an algorithm, both steps are null and `run` does nothing.
  if (name.empty()) return {};
  const auto* found = std::ranges::find(kAlgorithms, name, &NamedEntry::name);
  FQ_CHECK(found != std::end(kAlgorithms), "quantize", "the algorithm '{}' is unknown", name);
  return found->entry();
}

Report run(AlgorithmStep step, Module& model, DataLoader& data, AlgorithmOptions options,
           std::shared_ptr<Communicator> ranks) {
  if (step == nullptr) return {};
  options.set_ranks(std::move(ranks));
  // The algorithms read and write weights as arrays; the model returns to its device at the end.
  const detail::OnHost host(model);
  return step(model, data, options);
}

}  // namespace

AlgorithmOptions::AlgorithmOptions(const std::string& algorithm, const std::vector<AlgorithmOption>& known,
                                   const nlohmann::json* given, std::int64_t samples)
    : samples_(samples) {
  if (given == nullptr) return;
  for (const auto& [key, value] : given->items())
    // Errors get the JSON pointer of the option in the config.
    detail::locate_errors("/" + detail::json_pointer_token(key), [&, &key = key, &value = value] {
      const auto& option = option_named(key, algorithm, known);
      const double number = read(algorithm, key, option.type, value);
      // If a file has both names of an option, the name without alias decides.
      if (key == option.name || !given->contains(option.name)) values_[option.name] = number;
    });
}

double AlgorithmOptions::number(const std::string& name, double fallback) const {
  const auto found = values_.find(name);
  return found == values_.end() ? fallback : found->second;
}

int AlgorithmOptions::count(const std::string& name, int fallback) const {
  return static_cast<int>(number(name, fallback));
}

bool AlgorithmOptions::flag(const std::string& name, bool fallback) const {
  return number(name, fallback ? 1 : 0) != 0;
}

Algorithm::Algorithm(const QuantConfig& config, std::int64_t samples)
    : name_(config.weight_algorithm), entry_(std::make_shared<const AlgorithmEntry>(find_entry(name_))) {
  detail::locate_errors(config.weight_place, [&] {
    options_ = std::make_shared<const AlgorithmOptions>(name_, entry_->options, config.weight_options.get(),
                                                        samples);
  });
}

bool Algorithm::precedes_calibration() const noexcept { return entry_->before != nullptr; }

Report Algorithm::before(Module& model, DataLoader& data, std::shared_ptr<Communicator> ranks) const {
  return run(entry_->before, model, data, *options_, std::move(ranks));
}

Report Algorithm::after(Module& model, DataLoader& data, std::shared_ptr<Communicator> ranks) const {
  return run(entry_->after, model, data, *options_, std::move(ranks));
}

}  // namespace fq::ptq
