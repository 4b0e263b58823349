#include "fakequant/cli/flags/recipe_changes.h"

#include <algorithm>

#include "fakequant/cli/flags/removed.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"

namespace fq::cli {
namespace {

using nlohmann::ordered_json;

/// Numbers, lists, true and false are what they are in JSON; anything else is a text.
ordered_json value_in(const std::string& text) {
  auto value = ordered_json::parse(text, nullptr, false);
  const bool plain = value.is_discarded() || value.is_null() || value.is_object() || value.is_number();
  return plain ? ordered_json(text) : value;
}

}  // namespace

RecipeChanges::RecipeChanges(const std::vector<std::string>& texts) {
  for (const auto& text : texts) {
    const std::size_t equals = text.find('='), dot = text.find('.');
    FQ_CHECK(equals != std::string::npos && dot > 0 && dot < equals && text[equals - 1] != '.', "run",
             "--set is '{}': give PHASE.FLAG=VALUE, such as train.lr=0.01", text);
    Change change{text, text.substr(0, equals), value_in(text.substr(equals + 1))};
    for (const auto& other : changes_)
      FQ_CHECK(other.name != change.name, "run", "--set: '{}' and '{}': give one", other.text, text);
    changes_.push_back(std::move(change));
  }
}

std::string RecipeChanges::key_in(const Change& change, const std::string& phase, const FlagSet& set) {
  for (const auto& name : {phase, set.command()}) {
    if (!change.name.starts_with(name + ".")) continue;
    const std::string key = change.name.substr(name.size() + 1);
    // The key of a setting may hold a dot, and so may the name of another phase.
    if (key.find('.') == std::string::npos || set.find_setting(key) != nullptr) return key;
  }
  return {};
}

std::map<std::string, std::shared_ptr<const fq::detail::JsonText>> RecipeChanges::of_phase(
    const std::string& name, const FlagSet& set) {
  std::map<std::string, std::shared_ptr<const fq::detail::JsonText>> out;
  std::map<std::string, std::string> texts;
  for (auto& change : changes_) {
    const std::string key = key_in(change, name, set);
    if (key.empty()) continue;
    auto names = set.names();
    for (const Setting& setting : set.settings_table()) names.push_back(setting.key);
    const bool known = std::ranges::find(names, key) != names.end();
    if (const auto* moved = known ? nullptr : find_moved_flag(set.command(), key))
      FQ_CHECK(false, "run", "--set {}: {}", change.text, moved->message());
    if (const auto* removed = known ? nullptr : find_removed_flag(key))
      FQ_CHECK(false, "run", "--set {}: {}", change.text, removed->message());
    FQ_CHECK(known, "run", "--set {}: {} has no flag '{}'{}", change.text, set.command(), key,
             fq::detail::did_you_mean(key, names));
    change.used = true;
    const auto [same, is_first] = texts.emplace(key, change.text);
    FQ_CHECK(is_first, "run", "--set: '{}' and '{}' are of one phase, {}: give one", same->second,
             change.text, name);
    const ordered_json object{{key, change.value}};
    out[key] = std::make_shared<const fq::detail::JsonText>(
        fq::detail::JsonText::of_value(object, object.dump(), "run --set " + change.text));
  }
  return out;
}

void RecipeChanges::check_used(const std::vector<std::string>& phases) const {
  for (const auto& change : changes_)
    if (!change.used) {
      const std::string phase = change.name.substr(0, change.name.rfind('.'));
      FQ_CHECK(false, "run", "--set {}: the recipe has no phase '{}'{}", change.text, phase,
               fq::detail::did_you_mean(phase, phases));
    }
}

}  // namespace fq::cli
