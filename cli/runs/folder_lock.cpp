#include "fakequant/cli/runs/folder_lock.h"

#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "fakequant/cli/flags/file_checks.h"
#include "fakequant/cli/runs/run_folder.h"
#include "fakequant/cli/system/ranks.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/unfinished_file.h"

namespace fq::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLocked = "writer";  // what the lock of a folder is named by

std::vector<std::string> make_folders(const std::string& folder) {
  std::vector<std::string> made;
  fs::path so_far;
  for (const fs::path& part : fs::path(folder)) {
    so_far /= part;
    std::error_code error;
    if (part.empty()) continue;  // behind a slash at the end
    if (fs::create_directory(so_far, error)) {
      made.insert(made.begin(), so_far.string());
      (void)fq::detail::sync_folder(fq::detail::folder_of(so_far.string()));
    }
    if (error)
      throw FileError(folder, "",
                      fmt::format("[run] {} cannot be made: {}: name another folder by --output",
                                  so_far.string(), error.message()));
  }
  return made;
}

}  // namespace

FolderLock::FolderLock(const std::string& command, const std::string& folder) : made_(make_folders(folder)) {
  try {
    lock_ = std::make_unique<FileLock>((fs::path(folder) / kLocked).string(), [&](const std::string& owner) {
      throw FolderTaken(fmt::format("[{}] {} is being written by {}: wait for it, or name another folder",
                                    command, folder, owner));
    });
  } catch (const FolderTaken&) {
    throw;
  } catch (const std::exception&) {
    remove_empty(made_);
    throw;
  }
}

FolderLock::~FolderLock() {
  lock_.reset();
  remove_empty(made_);
}

std::unique_ptr<FolderLock> lock_run(const Flags& flags) {
  const auto folder = run_folder(flags);
  if (!folder || !is_first_rank()) return nullptr;
  auto lock = std::make_unique<FolderLock>(flags.command(), folder->path);
  check_run_folder(flags);  // another may have begun and ended a run since that was asked first
  return lock;
}

}  // namespace fq::cli
