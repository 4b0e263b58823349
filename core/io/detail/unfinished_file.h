#pragma once

/// The file that takes the bytes of another one until they are whole.

#include <string>

namespace fq::detail {

/// ".NAME.fakequant-XXXXXX" beside `target`, made new and locked while it lives; removed unless it was
/// renamed. What killed writers of the same target left, known by its name and by having no lock, is removed
/// first. Throws std::system_error: what the system says, EWOULDBLOCK while another writes the same target.
class UnfinishedFile {
 public:
  /// `mode` 0: as the umask says.
  UnfinishedFile(std::string target, unsigned mode);
  ~UnfinishedFile();
  UnfinishedFile(const UnfinishedFile&) = delete;  // owns the file
  UnfinishedFile& operator=(const UnfinishedFile&) = delete;

  [[nodiscard]] int descriptor() const noexcept { return file_; }
  /// Puts it in the place of the target.
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

/// The directory of a file, "." where the path does not name one.
[[nodiscard]] std::string folder_of(const std::string& path);
/// Makes the names in a folder safe from a loss of power. What the system says, 0 when it did, and where a
/// folder cannot be synced: one that may be written and not read, a file system that syncs none.
[[nodiscard]] int sync_folder(const std::string& folder);
/// The name ".NAME.fakequant-" + `what`, of a file that serves the file NAME; long names are cut and told
/// apart by a checksum.
[[nodiscard]] std::string companion_name(const std::string& path, const std::string& what);
/// Whether `name` in that folder is still the file that is open.
[[nodiscard]] bool is_open_file(int file, const std::string& path);

}  // namespace fq::detail
