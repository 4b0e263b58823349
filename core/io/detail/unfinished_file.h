#pragma once

/// A temporary file that becomes the target file once it is complete.

#include <string>

namespace fq::detail {

/// Creates and locks ".NAME.fakequant-XXXXXX" in the directory of `target`, and removes it at the end unless
/// it was renamed. First removes files of killed writers of the same target, recognized by their name and
/// their missing lock. Throws std::system_error with the system's error, EWOULDBLOCK while another process
/// writes the same target.
class UnfinishedFile {
 public:
  /// A `mode` of 0 means the mode of the umask.
  UnfinishedFile(std::string target, unsigned mode);
  ~UnfinishedFile();
  UnfinishedFile(const UnfinishedFile&) = delete;  // owns the file
  UnfinishedFile& operator=(const UnfinishedFile&) = delete;

  [[nodiscard]] int descriptor() const noexcept { return file_; }
  /// Renames the file to the target.
  void rename();

 private:
  explicit UnfinishedFile(std::string target);

  void create();
  [[nodiscard]] bool lock() const;
  [[nodiscard]] bool alone() const;
  void remove() noexcept;

  std::string target_, folder_, prefix_;
  std::string path_;  // its own; empty when there is none
  int file_ = -1;
};

/// Returns the directory of a file, "." if the path has none.
[[nodiscard]] std::string parent_folder(const std::string& path);
/// Syncs a folder to disk, so that its names survive a power failure. Returns the system's error. Returns 0
/// on success and for a folder that cannot be synced: one that is writable but not readable, or on a file
/// system without sync.
[[nodiscard]] int sync_folder(const std::string& folder);
/// Returns the name ".NAME.fakequant-" + `what` for a companion of the file NAME. Long names are cut and get
/// a checksum to stay unique.
[[nodiscard]] std::string companion_name(const std::string& path, const std::string& what);
/// Whether `path` still names the open file.
[[nodiscard]] bool is_open_file(int file, const std::string& path);

}  // namespace fq::detail
