#pragma once

/// Members of a zip archive (PKWARE APPNOTE 6.3.10), stored or deflated; nothing of it is unpacked to disk.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fakequant/train/data/reader/byte_stream.h"

namespace fq::detail {

class ZipArchive {
 public:
  struct Member {
    std::string name;
    std::int64_t header = 0, packed = 0, size = 0;  // offset of its header; bytes in the archive; bytes
    std::uint32_t crc32 = 0;
    int method = 0;  // 0: stored, 8: deflated
  };

  /// Reads the directory: at most 2^16 members. Throws FileError for what is no archive, for a directory that
  /// does not fit its file, and for names that lead out of it: absolute ones, and those with "..".
  explicit ZipArchive(const std::string& path);

  [[nodiscard]] const std::string& path() const noexcept { return file_->path(); }
  [[nodiscard]] const std::vector<Member>& members() const noexcept { return members_; }
  /// Its bytes; the checksum is compared at their end. Throws FileError for other methods, encryption, and
  /// sizes that the archive has no room for.
  [[nodiscard]] std::unique_ptr<ByteStream> open(const Member& member) const;

 private:
  [[noreturn]] void fail(const std::string& why) const;
  std::string directory(std::int64_t& count) const;
  std::size_t take_member(const std::string& directory, std::size_t at);

  std::shared_ptr<const FileReader> file_;
  std::vector<Member> members_;
};

}  // namespace fq::detail
