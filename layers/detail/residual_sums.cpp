#include "fakequant/layers/detail/residual_sums.h"

#include <algorithm>
#include <ranges>
#include <vector>

#include "fakequant/core/operators.h"
#include "fakequant/layers/model/float_operators.h"

namespace fq::detail {
namespace {

bool is_always_in_floats(const std::string& op) {
  const auto& forms = engine_forms();
  const auto form = std::ranges::find(forms, std::string_view(op), &EngineForm::op);
  return form != forms.end() && form->exact.empty() && !form->reason.empty();
}

bool is_addition(const TraceNode& node) { return node.op == "add" && !node.path.empty(); }

/// From the output back, so that what reads a value is known before what makes it.
class ResidualSums {
 public:
  explicit ResidualSums(const TraceGraph& graph)
      : graph_(graph), read_(graph.values.size(), false), read_as_codes_(graph.values.size(), false) {}

  std::set<std::string> run() {
    if (graph_.output >= 0) read_as_codes_[static_cast<std::size_t>(graph_.output)] = true;
    std::set<std::string> found, others;
    for (const auto& node : std::views::reverse(graph_.nodes)) {
      const auto output = static_cast<std::size_t>(node.output);
      const bool in_floats = read_[output] && !read_as_codes_[output];
      if (is_addition(node)) (in_floats ? found : others).insert(node.path);
      const bool passes = is_addition(node) || traits(node.op).moves_values;
      mark(node, is_always_in_floats(node.op) || (passes && in_floats));
    }
    for (const auto& path : others) found.erase(path);
    return found;
  }

 private:
  void mark(const TraceNode& node, bool in_floats) {
    for (const int input : node.inputs) {
      if (input < 0) continue;
      read_[static_cast<std::size_t>(input)] = true;
      if (!in_floats) read_as_codes_[static_cast<std::size_t>(input)] = true;
    }
  }

  const TraceGraph& graph_;
  std::vector<bool> read_, read_as_codes_;
};

}  // namespace

std::set<std::string> residual_sums(const TraceGraph& graph) { return ResidualSums(graph).run(); }

}  // namespace fq::detail
