#pragma once

/// The names of codes in files: of `predict --codes` and of exported graphs.

#include <set>
#include <string>

namespace fq::detail {

/// Names the tensors of quantizers, for each pass through a network. The first tensor of a quantizer has its
/// name. Further tensors of the same quantizer, and tensors of a quantizer without a name, have the path of
/// their reader or one of its aliases. A number is added if that name is already used.
class CodeNames {
 public:
  std::string of(const std::string& quantizer, const std::string& reader) {
    if (!quantizer.empty() && given_.insert(quantizer).second) return quantizer;
    std::string name = reader;
    for (int i = 1; !given_.insert(name).second; ++i) name = reader + "." + std::to_string(i);
    return name;
  }
  void next_pass() { given_.clear(); }

 private:
  std::set<std::string> given_;
};

}  // namespace fq::detail
