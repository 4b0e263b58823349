#pragma once

/// A folder for files of one run.

#include <string>

namespace fq::cli {

/// Makes a folder of its own where the system keeps such (TMPDIR, or /tmp), and removes it with all that is
/// in it.
class TemporaryFolder {
 public:
  /// Throws SystemError.
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;  // one owner removes it
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace fq::cli
