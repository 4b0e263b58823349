#include "fakequant/export/onnx/reader/node_names.h"

#include <algorithm>
#include <cctype>

namespace fq::detail {
namespace {

constexpr std::size_t kLongest = 80;

std::vector<std::string> split(const std::string& text, char mark) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t end = 0; end != std::string::npos; begin = end + 1) {
    end = text.find(mark, begin);
    const auto part = text.substr(begin, end == std::string::npos ? end : end - begin);
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

/// "layer1.0.conv1" of the weight "layer1.0.conv1.weight"; names that exporters make up have none.
std::string weight_path(const OnnxNode& node) {
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const std::string& name = node.inputs[i];
    const auto dot = name.rfind('.');
    if (dot != std::string::npos && dot > 0 && name.find_first_of(":/") == std::string::npos)
      return name.substr(0, dot);
  }
  return {};
}

}  // namespace

std::string legal_name(std::string text) {
  text.resize(std::min(text.size(), kLongest));
  for (char& c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-') c = '_';
  return text;
}

std::string module_path_of(const OnnxNode& node) {
  auto parts = split(node.name.substr(0, 1000), '/');
  if (parts.size() < 2) return {};
  parts.pop_back();
  std::string path, last;
  for (const auto& part : parts) {
    const bool repeats = !last.empty() && part.starts_with(last + ".");
    path += (path.empty() ? "" : ".") + (repeats ? part.substr(last.size() + 1) : part);
    last = part;
  }
  return path;
}

NodeNames::NodeNames(const std::vector<OnnxNode>& nodes) {
  for (const auto& node : nodes) paths_.insert(module_path_of(node));
}

bool NodeNames::is_shared(const std::string& path) const {
  const auto below = paths_.lower_bound(path + ".");
  return paths_.count(path) > 1 || (below != paths_.end() && below->starts_with(path + "."));
}

std::string NodeNames::name(const OnnxNode& node, const std::string& type, const std::string& suffix) const {
  const auto path = module_path_of(node), weights = weight_path(node);
  const std::string behind = suffix.empty() ? "" : "_" + suffix;
  if (!path.empty() && !is_shared(path)) return legal_name(path) + behind;
  if (!weights.empty()) return legal_name(weights) + behind;
  return legal_name(path.empty() ? "" : path + ".") + (suffix.empty() ? type : suffix);
}

}  // namespace fq::detail
