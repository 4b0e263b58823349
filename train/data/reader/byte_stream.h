#pragma once

/// Bytes one after another: of a file, of a part of one, or of what is compressed in it.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "fakequant/core/io/detail/file_reader.h"

namespace fq::detail {

class ByteStream {
 public:
  /// `place` names it in messages: a path, or "a.npz:x.npy".
  explicit ByteStream(std::string place) : place_(std::move(place)) {}
  virtual ~ByteStream() = default;
  ByteStream(const ByteStream&) = delete;  // stands at a place of a file
  ByteStream& operator=(const ByteStream&) = delete;

  [[nodiscard]] const std::string& place() const noexcept { return place_; }
  /// At most `bytes` bytes, at least one; 0 at the end. Throws FileError.
  [[nodiscard]] virtual std::size_t read_some(void* to, std::size_t bytes) = 0;
  /// No more bytes than that are left: what a file may claim is compared with it.
  [[nodiscard]] virtual std::int64_t at_most() const = 0;
  /// Exactly `bytes` bytes. Throws FileError when there are fewer.
  void read(void* to, std::size_t bytes);
  /// All that is left. Throws FileError for more than `limit` bytes.
  [[nodiscard]] std::string read_rest(std::size_t limit);
  [[noreturn]] void fail(const std::string& why) const;

 private:
  std::string place_;
};

/// `bytes` bytes of a file from `offset` on; -1: all.
[[nodiscard]] std::unique_ptr<ByteStream> open_stream(std::shared_ptr<const FileReader> file,
                                                      std::string place, std::int64_t offset = 0,
                                                      std::int64_t bytes = -1);

enum class Packing { deflate, gzip };
/// What `packed` expands to. Of gzip its checksum is compared, of deflate only that it ends.
[[nodiscard]] std::unique_ptr<ByteStream> expand(std::unique_ptr<ByteStream> packed, Packing packing);
/// A file, expanded where it begins as gzip does.
[[nodiscard]] std::unique_ptr<ByteStream> open_stream(const std::string& path);

}  // namespace fq::detail
