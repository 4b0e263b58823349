#pragma once

/// The names of codes in files: of `predict --codes` and of exported graphs; not a public header.

#include <set>
#include <string>

namespace fq::detail {

/// A quantizer that serves several tensors in one pass through a network names the first; the others have the
/// path of their reader, one of its aliases.
class CodeNames {
 public:
  const std::string& of(const std::string& quantizer, const std::string& reader) {
    return seen_.insert(quantizer).second ? quantizer : reader;
  }
  void next_pass() { seen_.clear(); }

 private:
  std::set<std::string> seen_;
};

}  // namespace fq::detail
