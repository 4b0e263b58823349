#pragma once

/// Files of tests: each process has its own folder, gone with it.

#include <filesystem>
#include <string>

#include <unistd.h>

namespace fq::test {

inline std::string temporary(const std::string& name) {
  struct Folder {
    std::filesystem::path path =
        std::filesystem::temp_directory_path() / ("fakequant_export_" + std::to_string(::getpid()));
    Folder() { std::filesystem::create_directories(path); }
    ~Folder() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
    Folder(const Folder&) = delete;  // owns what is on disk
    Folder& operator=(const Folder&) = delete;
  };
  static const Folder folder;
  return (folder.path / name).string();
}

}  // namespace fq::test
