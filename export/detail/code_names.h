#pragma once

/// The names of codes in files: of `predict --codes` and of exported graphs.

#include <set>
#include <string>

namespace fq::detail {

/// A quantizer that serves several tensors in one pass through a network names the first; the others have the
/// path of their reader, one of its aliases, or that and a number where it is taken. So have those of a
/// quantizer without a name.
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
