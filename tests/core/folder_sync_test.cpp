#include <cerrno>
#include <filesystem>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/atomic_file.h"

namespace {

int folder_error = 0;  // errno of fsync for a directory; 0: calls the system

}  // namespace

/// Replaces the C library's fsync in this program.
extern "C" int fsync(int file) {
  struct stat status {};
  if (folder_error == 0 || ::fstat(file, &status) != 0 || !S_ISDIR(status.st_mode))
    return static_cast<int>(::syscall(SYS_fsync, file));
  errno = folder_error;
  return -1;
}

namespace fq::folder_sync_test {
namespace {

TEST(AtomicFileFolder, ReportsAnUnsyncedDirectory) {
  const auto folder = std::filesystem::path(testing::TempDir()) / ("fq_folder_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const std::string path = (folder / "a").string();
  folder_error = EIO;
  EXPECT_THROW(write_file(path, "written"), SystemError);
  EXPECT_EQ(read_file(path), "written");
  folder_error = EINVAL;  // a file system that syncs no directories
  write_file(path, "again");
  folder_error = 0;
  EXPECT_EQ(read_file(path), "again");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace fq::folder_sync_test
