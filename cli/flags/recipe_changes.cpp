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
    const std::size_t equals = text.find('='), dot = text.substr(0, equals).rfind('.');
    FQ_CHECK(equals != std::string::npos && dot != std::string::npos && dot > 0 && dot + 1 < equals, "run",
             "--set is '{}': give PHASE.FLAG=VALUE, such as train.lr=0.01", text);
    Change change{text, text.substr(0, dot), text.substr(dot + 1, equals - dot - 1), nullptr};
    for (const auto& other : changes_)
      FQ_CHECK(other.phase != change.phase || other.key != change.key, "run",
               "--set: '{}' and '{}': give one", other.text, text);
    const ordered_json object{{change.key, value_in(text.substr(equals + 1))}};
    change.value = std::make_shared<const fq::detail::JsonText>(
        fq::detail::JsonText::of_value(object, object.dump(), "run --set " + text));
    changes_.push_back(std::move(change));
  }
}

std::map<std::string, std::shared_ptr<const fq::detail::JsonText>> RecipeChanges::of_phase(
    const std::string& name, const FlagSet& set) {
  std::map<std::string, std::shared_ptr<const fq::detail::JsonText>> out;
  std::map<std::string, std::string> texts;
  for (auto& change : changes_) {
    if (change.phase != name && change.phase != set.command()) continue;
    const auto names = set.names();
    const bool known = std::ranges::find(names, change.key) != names.end();
    if (const auto* removed = known ? nullptr : find_removed_flag(change.key))
      FQ_CHECK(false, "run", "--set {}: {}", change.text, removed->message());
    FQ_CHECK(known, "run", "--set {}: {} has no flag '{}'{}", change.text, set.command(), change.key,
             fq::detail::did_you_mean(change.key, names));
    change.used = true;
    const auto [same, is_first] = texts.emplace(change.key, change.text);
    FQ_CHECK(is_first, "run", "--set: '{}' and '{}' are of one phase, {}: give one", same->second,
             change.text, name);
    out[change.key] = change.value;
  }
  return out;
}

void RecipeChanges::check_used(const std::vector<std::string>& phases) const {
  for (const auto& change : changes_)
    FQ_CHECK(change.used, "run", "--set {}: the recipe has no phase '{}'{}", change.text, change.phase,
             fq::detail::did_you_mean(change.phase, phases));
}

}  // namespace fq::cli
