#include "fakequant/core/io/detail/file_reader.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <map>
#include <memory>
#include <string_view>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/crc32c.h"

namespace fq::detail {
namespace {

constexpr std::int64_t kPiece = std::int64_t{1} << 20;

[[noreturn]] void fail(const std::string& path, const std::string& why) {
  throw FileError(path, "", fmt::format("[read_file] {} cannot be read: {}", path, why));
}

}  // namespace

FileReader::FileReader(std::string path) : path_(std::move(path)) {
  struct stat status {};
  // Checks before opening: opening a pipe or a device may block or have effects.
  if (::stat(path_.c_str(), &status) != 0) fail(path_, std::generic_category().message(errno));
  if (!S_ISREG(status.st_mode))
    fail(path_, S_ISDIR(status.st_mode) ? "it is a directory" : "it is not a regular file");
  file_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file_ < 0) fail(path_, std::generic_category().message(errno));
  // Checks again: the path may name another file now.
  if (::fstat(file_, &status) == 0 && S_ISREG(status.st_mode)) {
    size_ = status.st_size;
    return;
  }
  ::close(file_);
  fail(path_, "it is not a regular file");
}

FileReader::~FileReader() { ::close(file_); }

bool FileReader::is_same(int descriptor) const noexcept {
  struct stat own {
  }, other{};
  return ::fstat(file_, &own) == 0 && ::fstat(descriptor, &other) == 0 && own.st_dev == other.st_dev &&
         own.st_ino == other.st_ino;
}

void FileReader::read(std::int64_t offset, void* data, std::size_t bytes) const {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    // pread has no shared position, so threads may read one file at the same time.
    const auto got = ::pread(file_, at, std::min(bytes, std::size_t{1} << 30), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path_, std::generic_category().message(errno));
    if (got == 0) fail(path_, "it ends too early");
    at += got;
    offset += got;
    bytes -= static_cast<std::size_t>(got);
  }
}

std::uint32_t FileReader::checksum(std::int64_t offset, std::int64_t bytes) const {
  const auto buffer =
      std::make_unique_for_overwrite<char[]>(static_cast<std::size_t>(std::min(kPiece, bytes)));
  std::uint32_t crc = 0;
  for (std::int64_t end = offset + bytes; offset < end;) {
    const auto piece = static_cast<std::size_t>(std::min(kPiece, end - offset));
    read(offset, buffer.get(), piece);
    crc = crc32c(buffer.get(), piece, crc);
    offset += static_cast<std::int64_t>(piece);
  }
  return crc;
}

namespace {

using namespace std::string_view_literals;

constexpr std::int64_t kBeginning = 512;
constexpr int kMostListed = 100'000;

struct Beginning {
  std::string_view bytes;
  const char* kind;
};

// First bytes of files that users confuse with data sets and checkpoints. Only messages use the kinds.
constexpr Beginning kBeginnings[] = {
    {"\x89"
     "FQS\r\n\x1a\n"sv,
     "a file of fakequant"},
    {"\x93NUMPY"sv, "a NumPy array"},
    {"\x89PNG"sv, "a PNG image"},
    {"\xff\xd8\xff"sv, "a JPEG image"},
    {"GIF8"sv, "a GIF image"},
    {"BM"sv, "a BMP image"},
    {"II*\0"sv, "a TIFF image"},
    {"MM\0*"sv, "a TIFF image"},
    {"PAR1"sv, "a Parquet file"},
    {"CDF\x01"sv, "a NetCDF file"},
    {"MATLAB 5.0"sv, "a MATLAB file"},
    {"\0\0\x08\x03"sv, "an IDX file of images, as MNIST comes"},
    {"\0\0\x08\x01"sv, "an IDX file of labels, as MNIST comes"},
    {"\x1f\x8b"sv, "a gzip archive"},
    {"BZh"sv, "a bzip2 archive"},
    {"\xfd"
     "7zXZ"sv,
     "an xz archive"},
};

struct Ending {
  std::string_view extension;
  const char* kind;
};

/// Kinds of files that the first bytes do not identify: zip archives, pickles, protobuf.
constexpr Ending kEndings[] = {
    {".onnx", "an ONNX model"},        {".npz", "an archive of NumPy arrays"},
    {".pt", "a PyTorch file"},         {".pth", "a PyTorch file"},
    {".pkl", "a Python pickle"},       {".safetensors", "a safetensors file"},
    {".tfrecord", "a TFRecord file"},  {".tflite", "a TensorFlow Lite model"},
    {".gguf", "a GGUF file"},          {".engine", "a TensorRT engine"},
    {".pte", "an ExecuTorch program"},
};

bool is_text(std::string_view bytes) {
  return !bytes.empty() && std::ranges::all_of(bytes, [](unsigned char c) {
    return c >= 0x20 ? c != 0x7f : c == '\n' || c == '\r' || c == '\t';
  });
}

std::string directory_kind(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  std::map<std::string, int> counts;
  std::error_code error;
  int listed = 0;
  // Names the most frequent extension. The limit keeps a message fast for a folder of millions of images.
  for (fs::recursive_directory_iterator at(path, fs::directory_options::skip_permission_denied, error), end;
       at != end && !error && listed < kMostListed; at.increment(error), ++listed)
    if (at->is_regular_file(error)) ++counts[at->path().extension().string()];
  if (counts.empty()) return "a directory";
  const auto most = std::ranges::max_element(counts, {}, [](const auto& entry) { return entry.second; });
  return fmt::format("a directory of {}{} {}", most->second, most->first.empty() ? "" : " " + most->first,
                     most->second == 1 ? "file" : "files");
}

std::string detect_kind(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return directory_kind(path);
  const FileReader file(path);
  std::string bytes(static_cast<std::size_t>(std::min(file.size(), kBeginning)), '\0');
  file.read(0, bytes.data(), bytes.size());
  for (const auto& [beginning, kind] : kBeginnings)
    if (bytes.starts_with(beginning)) return kind;
  if (has_hdf5_signature(file)) return "an HDF5 file";
  for (const auto& [extension, kind] : kEndings)
    if (path.ends_with(extension)) return kind;
  if (bytes.starts_with("RIFF") && bytes.size() > 12 && bytes.compare(8, 4, "WEBP") == 0)
    return "a WebP image";
  if (bytes.starts_with("PK\x03\x04")) return "a zip archive";
  // The POSIX ustar header has its magic at byte 257.
  if (bytes.size() > 262 && std::string_view(bytes).substr(257, 5) == "ustar") return "a tar archive";
  return is_text(bytes) ? "a text file" : "";
}

}  // namespace

bool has_hdf5_signature(const FileReader& file) {
  constexpr std::array<char, 8> kSignature{'\x89', 'H', 'D', 'F', '\r', '\n', '\x1a', '\n'};
  std::array<char, 8> bytes;
  // HDF5 allows a user block: the superblock begins at 0, 512, 1024, 2048, .. (format specification, section
  // II.A).
  for (std::int64_t at = 0; at + 8 <= file.size(); at = at == 0 ? 512 : at * 2) {
    file.read(at, bytes.data(), bytes.size());
    if (bytes == kSignature) return true;
  }
  return false;
}

std::string file_kind(const std::string& path) {
  try {
    // Only improves messages: a failure here must not replace the error that is reported.
    return detect_kind(path);
  } catch (const std::exception&) {
    return {};
  }
}

}  // namespace fq::detail
