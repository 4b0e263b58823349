#include "fakequant/export/onnx/reader/missing.h"

#include <algorithm>
#include <string_view>

#include <fmt/ranges.h>

#include "fakequant/core/detail/text.h"
#include "fakequant/core/error.h"
#include "fakequant/export/onnx/reader/node_reader.h"

namespace fq::detail {
namespace {

constexpr std::size_t kMostNamed = 50;  // of one operator
constexpr std::string_view kFunction = "[import_onnx] ";

struct WayRound {
  std::string_view pattern;
  const char* way;
};

/// The first that matches counts.
constexpr WayRound kWays[] = {
    {"*QuantizeLinear*",
     "the file is quantized: import the float one, or use the checkpoint that it was exported from"},
    {"*QLinear*",
     "the file is quantized: import the float one, or use the checkpoint that it was exported from"},
    {"*Integer*", "the file is quantized: import the float one"},
    {"*DynamicQuantize*",
     "the file is quantized: import the float one, or use the checkpoint that it was exported from"},
    {"com.microsoft.*", "an optimiser of ONNX Runtime fused it: import the file from before that"},
    {"*.*", "operators of other domains are unknown here: export the model in those of ONNX alone"},
    {"If*",
     "its condition is computed from the input: export without branches, torch.onnx.export traces one way"},
    {"Loop*", "export without loops: torch.onnx.export unrolls those of fixed length"},
    {"Scan*", "export without loops: torch.onnx.export unrolls those of fixed length"},
    {"ArgMax*", "export the network up to its logits"},
    {"TopK*", "export the network up to its logits"},
    {"NonMaxSuppression*", "export the network up to its logits"},
    {"Gather of other*", "select by constants: torch.index_select, or slices"},
    {"GatherND*", "read values at fixed places: an index that is a constant"},
    {"Sequence*",
     "lists of tensors: torch.nn.EmbeddingBag is written so, an Embedding and a mean of its rows are not"},
    {"ConcatFromSequence*", "lists of tensors: stack them by torch.stack, with a fixed number of them"},
    {"Col2Im*",
     "torch.nn.Fold is written so: add up patches by a transposed convolution with a fixed weight"},
    {"GridSample*", "resize by torch.nn.functional.interpolate where the grid is even"},
    {"Scatter*", "write values side by side by torch.cat in place of assigning them"},
};

std::string name_of_node(const OnnxNode& node) {
  return (node.name.empty() && !node.outputs.empty() ? node.outputs[0] : node.name).substr(0, 200);
}

std::string names_text(const std::vector<std::string>& names) {
  const auto shown = std::min(names.size(), kMostNamed);
  return fmt::format("{}: '{}'{}", names.size(),
                     fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), "', '"),
                     shown < names.size() ? fmt::format(" and {} more", names.size() - shown) : "");
}

}  // namespace

std::string way_round(const std::string& what) {
  const auto found =
      std::ranges::find_if(kWays, [&](const WayRound& way) { return wildcard_match(way.pattern, what); });
  return found == std::end(kWays) ? "" : found->way;
}

void MissingNodes::add(const OnnxNode& node, const std::string& what) {
  nodes_[what].push_back(name_of_node(node));
}

void MissingNodes::add_error(std::string message) {
  if (message.starts_with(kFunction)) message.erase(0, kFunction.size());
  errors_.push_back(std::move(message));
}

void MissingNodes::check() const {
  if (nodes_.empty() && errors_.empty()) return;
  std::vector<std::string> list, ways, parts;
  for (const auto& [what, names] : nodes_) {
    list.push_back(fmt::format("{} ({})", what, names_text(names)));
    if (const std::string way = way_round(what); !way.empty())
      ways.push_back(fmt::format("{}: {}", what, way));
  }
  if (!list.empty())
    parts.push_back(fmt::format("these operators are not supported: {}", fmt::join(list, ", ")));
  if (!ways.empty()) parts.push_back(fmt::format("ways round: {}", fmt::join(ways, "; ")));
  parts.insert(parts.end(), errors_.begin(),
               errors_.begin() + std::min<std::ptrdiff_t>(std::ssize(errors_), 50));
  throw ArgumentError(fmt::format("{}{}", kFunction, fmt::join(parts, ". ")));
}

}  // namespace fq::detail
