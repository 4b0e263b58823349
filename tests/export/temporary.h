#pragma once

/// Files of tests: each process has its own folder, gone with it.

#include <string>

#include "folder.h"

namespace fq::test {

inline std::string temporary(const std::string& name) {
  static const Folder folder;
  return folder.file(name);
}

}  // namespace fq::test
