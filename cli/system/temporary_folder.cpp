#include "fakequant/cli/system/temporary_folder.h"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>
#include <stdlib.h>

#include "fakequant/core/error.h"

namespace fq::cli {

TemporaryFolder::TemporaryFolder() {
  std::error_code error;
  const auto parent = std::filesystem::temp_directory_path(error);
  path_ = ((error ? "/tmp" : parent) / "fakequant.XXXXXX").string();
  if (::mkdtemp(path_.data()) == nullptr)
    throw SystemError(fmt::format("[fakequant] no folder can be made in {}: {}: name another by TMPDIR",
                                  std::filesystem::path(path_).parent_path().string(), std::strerror(errno)));
}

TemporaryFolder::~TemporaryFolder() {
  try {
    std::filesystem::remove_all(path_);
  } catch (const std::exception&) {  // it stays in the system's folder, which others clear
  }
}

}  // namespace fq::cli
