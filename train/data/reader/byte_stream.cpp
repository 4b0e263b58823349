#include "fakequant/train/data/reader/byte_stream.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <zlib.h>

#include "fakequant/core/detail/check.h"

namespace fq::detail {
namespace {

constexpr std::size_t kPiece = 64 << 10;
constexpr std::int64_t kMostExpansion = 1032;  // of deflate

class FileStream final : public ByteStream {
 public:
  FileStream(std::shared_ptr<const FileReader> file, std::string place, std::int64_t offset,
             std::int64_t bytes)
      : ByteStream(std::move(place)), file_(std::move(file)), at_(offset), end_(offset + bytes) {}

  std::int64_t at_most() const override { return end_ - at_ + std::int64_t(buffered_.size() - begin_); }
  std::size_t read_some(void* to, std::size_t bytes) override {
    if (begin_ == buffered_.size()) {
      const auto ahead = std::min<std::int64_t>(end_ - at_, std::int64_t(std::max(bytes, kPiece)));
      if (ahead <= 0) return 0;
      if (bytes >= kPiece) return direct(to, std::min<std::size_t>(bytes, std::size_t(ahead)));
      buffered_.resize(std::size_t(ahead));
      file_->read(at_, buffered_.data(), buffered_.size());
      at_ += ahead;
      begin_ = 0;
    }
    const std::size_t count = std::min(bytes, buffered_.size() - begin_);
    std::memcpy(to, buffered_.data() + begin_, count);
    begin_ += count;
    return count;
  }

 private:
  std::size_t direct(void* to, std::size_t bytes) {
    file_->read(at_, to, bytes);
    at_ += std::int64_t(bytes);
    return bytes;
  }

  std::shared_ptr<const FileReader> file_;
  std::int64_t at_, end_;
  std::string buffered_;
  std::size_t begin_ = 0;
};

class InflateStream final : public ByteStream {
 public:
  InflateStream(std::unique_ptr<ByteStream> packed, Packing packing)
      : ByteStream(packed->place()), packed_(std::move(packed)), gzip_(packing == Packing::gzip) {
    if (inflateInit2(&state_, gzip_ ? 15 + 16 : -15) != Z_OK) throw std::bad_alloc();
  }
  ~InflateStream() override { inflateEnd(&state_); }

  std::int64_t at_most() const override {
    return (packed_->at_most() + state_.avail_in + std::int64_t(kPiece)) * kMostExpansion;
  }
  std::size_t read_some(void* to, std::size_t bytes) override {
    state_.next_out = static_cast<Bytef*>(to);
    state_.avail_out = static_cast<uInt>(std::min<std::size_t>(bytes, 1 << 30));
    const auto wanted = state_.avail_out;
    while (state_.avail_out == wanted && wanted > 0 && !ended_) step();
    return wanted - state_.avail_out;
  }

 private:
  void step() {
    if (state_.avail_in == 0) refill();
    const bool drained = state_.avail_in == 0;
    const int result = inflate(&state_, Z_NO_FLUSH);
    if (result == Z_STREAM_END) return next_member();
    if (result == Z_BUF_ERROR && drained) fail("ends early: it is truncated");
    if (result != Z_OK && result != Z_BUF_ERROR)
      fail(fmt::format("is damaged: {}", state_.msg != nullptr ? state_.msg : "it does not expand"));
  }

  void refill() {
    state_.next_in = input_.data();
    state_.avail_in = static_cast<uInt>(packed_->read_some(input_.data(), input_.size()));
  }

  /// Files of gzip may follow each other in one.
  void next_member() {
    if (gzip_ && state_.avail_in == 0) refill();
    ended_ = !gzip_ || state_.avail_in == 0 || *state_.next_in != 0x1f;
    if (!ended_) inflateReset(&state_);
  }

  std::unique_ptr<ByteStream> packed_;
  bool gzip_, ended_ = false;
  z_stream state_{};
  std::array<Bytef, kPiece> input_;
};

}  // namespace

void ByteStream::read(void* to, std::size_t bytes) {
  for (auto* at = static_cast<char*>(to); bytes > 0;) {
    const std::size_t got = read_some(at, bytes);
    if (got == 0) fail(fmt::format("ends {} bytes too early: it is truncated", bytes));
    at += got;
    bytes -= got;
  }
}

std::string ByteStream::read_rest(std::size_t limit) {
  std::string all, piece(kPiece, '\0');
  while (const std::size_t got = read_some(piece.data(), piece.size())) {
    all.append(piece, 0, got);
    if (all.size() > limit) fail(fmt::format("has more than {} bytes", limit));
  }
  return all;
}

void ByteStream::fail(const std::string& why) const {
  throw FileError(place_, "", fmt::format("[dataset] {} {}", place_, why));
}

std::unique_ptr<ByteStream> open_stream(std::shared_ptr<const FileReader> file, std::string place,
                                        std::int64_t offset, std::int64_t bytes) {
  const std::int64_t rest = file->size() - offset;
  return std::make_unique<FileStream>(std::move(file), std::move(place), offset, bytes < 0 ? rest : bytes);
}

std::unique_ptr<ByteStream> expand(std::unique_ptr<ByteStream> packed, Packing packing) {
  return std::make_unique<InflateStream>(std::move(packed), packing);
}

std::unique_ptr<ByteStream> open_stream(const std::string& path) {
  auto file = std::make_shared<const FileReader>(path);
  std::array<unsigned char, 2> begin{};
  if (file->size() >= 2) file->read(0, begin.data(), begin.size());
  auto stream = open_stream(std::move(file), path);
  return begin[0] == 0x1f && begin[1] == 0x8b ? expand(std::move(stream), Packing::gzip) : std::move(stream);
}

}  // namespace fq::detail
