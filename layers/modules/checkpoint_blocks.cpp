#include <algorithm>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/layers/model/graph.h"
#include "fakequant/layers/modules/checkpoint.h"

namespace fq {
namespace {

using detail::join_path;

/// The shortest beginning of the path that matches, ending before '_' or '.', or the whole of it; else empty.
std::string matching_beginning(std::string_view pattern, const std::string& path) {
  for (std::size_t end = path.find_first_of("_."); end != std::string::npos;
       end = path.find_first_of("_.", end + 1))
    if (detail::wildcard_match(pattern, path.substr(0, end))) return path.substr(0, end);
  return detail::wildcard_match(pattern, path) ? path : std::string();
}

bool below(const std::vector<std::string>& blocks, const std::string& path) {
  return std::ranges::any_of(
      blocks, [&](const std::string& block) { return path == block || path.starts_with(block + "."); });
}

}  // namespace

void set_checkpointing(Module& model, std::string_view pattern) {
  const auto modules = model.named_modules();
  for (const auto& [path, module] : modules) {
    module->set_checkpointed(false);
    if (auto* graph = dynamic_cast<Graph*>(module))
      (void)graph->set_blocks([](const auto&) { return std::string(); });
  }
  if (pattern.empty()) return;
  std::vector<std::string> covered;
  for (const auto& [path, module] : modules) {
    if (below(covered, path)) continue;
    if (!path.empty() && detail::wildcard_match(pattern, path)) {
      module->set_checkpointed(true);
      covered.push_back(path);
    } else if (auto* graph = dynamic_cast<Graph*>(module)) {
      const auto steps = graph->set_blocks([&, prefix = path](const std::string& name) {
        return matching_beginning(pattern, join_path(prefix, name));
      });
      for (const auto& step : steps) covered.push_back(join_path(path, step));
    }
  }
  std::vector<std::string> paths;
  for (const auto& [path, module] : modules) paths.push_back(path);
  FQ_CHECK(!covered.empty(), "set_checkpointing", "no module and no block of nodes is named '{}'{}", pattern,
           detail::did_you_mean(pattern, paths));
}

}  // namespace fq
