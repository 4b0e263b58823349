#pragma once

/// The whole module path, for work that is done later than its module ran.

#include <string>

namespace fq::detail {

/// Puts `path` in place of this thread's module path while it lives.
class ModulePathScope {
 public:
  explicit ModulePathScope(std::string path);
  ~ModulePathScope();
  ModulePathScope(const ModulePathScope&) = delete;  // tied to its block
  ModulePathScope& operator=(const ModulePathScope&) = delete;

 private:
  std::string previous_;
};

}  // namespace fq::detail
