#include "fakequant/export/safetensors/detail/weight_names.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>

#include "fakequant/core/detail/text.h"

namespace fq::detail {
namespace {

using Names = std::vector<std::string>;

/// Finds the text that each star of `pattern` matches in `name`. Earlier stars match as little as possible.
bool match_stars(std::string_view pattern, std::string_view name, Names& stars) {
  if (pattern.empty()) return name.empty();
  if (pattern.front() != '*') {
    const bool fits = !name.empty() && (pattern.front() == '?' || pattern.front() == name.front());
    return fits && match_stars(pattern.substr(1), name.substr(1), stars);
  }
  const std::string_view rest = pattern.substr(1);
  for (std::size_t length = 0; length <= name.size(); ++length) {
    // The rest of the name matches too, so the loop can stop at the shortest text.
    if (!wildcard_match(rest, name.substr(length))) continue;
    stars.emplace_back(name.substr(0, length));
    return match_stars(rest, name.substr(length), stars);
  }
  return false;
}

bool is_pattern(const std::string& name) { return name.find_first_of("*?") != std::string::npos; }

/// Parts of "lstm.weight_ih_l1_reverse": module, parameter, layer number and direction.
struct Recurrent {
  std::string module, parameter, layer, way;
};

std::optional<Recurrent> recurrent_name(const std::string& name) {
  const auto dot = name.rfind('.');
  std::string last = name.substr(dot == std::string::npos ? 0 : dot + 1), way;
  if (last.ends_with("_reverse")) {
    way = "_reverse";
    last.resize(last.size() - way.size());
  }
  for (const std::string parameter : {"weight_ih", "weight_hh", "bias_ih", "bias_hh"}) {
    const std::string begin = parameter + "_l";
    if (!last.starts_with(begin) || last.size() == begin.size()) continue;
    const std::string layer = last.substr(begin.size());
    if (!std::ranges::all_of(layer, [](char c) { return '0' <= c && c <= '9'; })) continue;
    return Recurrent{dot == std::string::npos ? "" : name.substr(0, dot), parameter, layer, way};
  }
  return std::nullopt;
}

/// Returns the names that a tensor may have in a model, the most likely first.
Names spellings(const std::string& name) {
  const auto found = recurrent_name(name);
  // A parameter of a PyTorch module itself (class_token) is a layer "parameter" here, with the tensor
  // `value`.
  if (!found) return {name, name + ".value"};
  const auto& [module, parameter, layer, way] = *found;
  Names out;
  const auto add = [&out, name = parameter + way](const std::string& path) {
    out.push_back(join_path(path, name));
  };
  if (layer == "0") add(module);
  add(module.empty() ? "l" + layer : module + "_l" + layer);
  if (layer != "0") add(module + "_" + layer);
  return out;
}

std::string plain(std::string name) {
  std::ranges::replace(name, '.', '_');
  return name;
}

std::string without(const std::string& name, const std::string& prefix) {
  return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

/// Returns "", and each prefix up to a dot that at least half of the names have.
Names common_prefixes(const Names& names) {
  Names out{""};
  std::map<std::string, std::size_t> counts;
  for (const auto& name : names) {
    std::size_t dot = name.find('.');
    // Eight levels bound the work for names with many dots.
    for (int depth = 0; dot != std::string::npos && depth < 8; ++depth, dot = name.find('.', dot + 1))
      ++counts[name.substr(0, dot + 1)];
  }
  for (const auto& [prefix, count] : counts)
    if (2 * count >= names.size()) out.push_back(prefix);
  return out;
}

struct Named {
  std::string file, wanted;
};

/// Pairs names of the file without `prefix` with names of the model without `own`.
std::map<std::string, std::string> pair_names(const Names& model, const std::vector<Named>& file,
                                              const std::string& prefix, const std::string& own) {
  std::map<std::string, std::string> exact, loose, out;
  for (const auto& name : model) {
    exact.emplace(without(name, own), name);
    loose.emplace(plain(without(name, own)), name);
  }
  std::set<std::string> taken;
  // All exact matches come first, so a loose match cannot take the place of an exact one.
  for (const bool as_it_is : {true, false})
    for (const auto& [name, wanted] : file) {
      if (taken.contains(name)) continue;
      for (const auto& spelling : spellings(without(wanted, prefix))) {
        const auto& known = as_it_is ? exact : loose;
        const auto found = known.find(as_it_is ? spelling : plain(spelling));
        if (found == known.end() || !out.emplace(found->second, name).second) continue;
        taken.insert(name);
        break;
      }
    }
  return out;
}

std::map<std::string, std::string> best_pairs(const Names& model, const std::vector<Named>& file) {
  Names wanted;
  for (const auto& named : file) wanted.push_back(named.wanted);
  std::map<std::string, std::string> best;
  for (const auto& own : common_prefixes(model))
    for (const auto& prefix : common_prefixes(wanted)) {
      // The first of equally good prefixes is kept. The shortest prefix "" comes first.
      auto pairs = pair_names(model, file, prefix, own);
      if (pairs.size() > best.size()) best = std::move(pairs);
    }
  return best;
}

/// Returns the rename for a name: a whole name, or the first pattern. Null if there is none.
const WeightRename* find_rename(const std::string& name, const std::vector<WeightRename>& renames) {
  std::string ignored;
  for (const bool pattern : {false, true})
    for (const auto& rename : renames)
      if (is_pattern(rename.from) == pattern && rename_weight(rename, name, ignored)) return &rename;
  return nullptr;
}

}  // namespace

bool rename_weight(const WeightRename& rename, const std::string& name, std::string& out) {
  Names stars;
  if (!match_stars(rename.from, name, stars)) return false;
  out.clear();
  std::size_t next = 0;
  for (const char c : rename.to)
    if (c == '*')
      out += next < stars.size() ? stars[next++] : "";
    else
      out += c;
  return true;
}

WeightMatch match_weights(const Names& model, const Names& file, const std::vector<WeightRename>& renames) {
  WeightMatch out;
  std::vector<Named> named;
  std::set<const WeightRename*> used;
  for (const auto& name : file) {
    const auto* rename = find_rename(name, renames);
    used.insert(rename);
    std::string wanted = name;
    if (rename != nullptr) (void)rename_weight(*rename, name, wanted);
    if (wanted.empty()) {
      out.dropped.push_back(name);
      continue;
    }
    if (wanted != name) out.renamed[name] = wanted;
    named.push_back({name, wanted});
  }
  out.places = best_pairs(model, named);
  std::set<std::string> taken;
  for (const auto& [place, name] : out.places) taken.insert(name);
  for (const auto& name : model)
    if (!out.places.contains(name)) out.missing.push_back(name);
  for (const auto& entry : named)
    if (!taken.contains(entry.file)) out.extra.push_back(entry.file);
  for (const auto& rename : renames)
    if (!used.contains(&rename)) out.idle.push_back(rename.from);
  return out;
}

}  // namespace fq::detail
