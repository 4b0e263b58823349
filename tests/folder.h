#pragma once

/// An empty folder of a test's own, gone with it; several processes may run the same test.

#include <filesystem>
#include <string>

#include <unistd.h>

namespace fq::test {

class Folder {
 public:
  Folder()
      : path_(std::filesystem::temp_directory_path() /
              ("fakequant_" + std::to_string(::getpid()) + "_" +
               std::to_string(reinterpret_cast<std::uintptr_t>(this)))) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;  // owns the folder
  Folder& operator=(const Folder&) = delete;

  [[nodiscard]] std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace fq::test
