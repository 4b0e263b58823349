#include "fakequant/core/io/detail/hdf5_filters.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include <zlib.h>

#include "fakequant/core/detail/check.h"

namespace fq::detail::h5 {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::size_t kChecksumBytes = 4;
constexpr std::size_t kLargestCompression = 1032;  // largest ratio of deflate
constexpr std::size_t kSmallestStream = 64;

template <class... Args>
[[noreturn]] void bad(fmt::format_string<Args...> text, Args&&... args) {
  throw BadChunk(fmt::format(text, std::forward<Args>(args)...));
}

// One step of the reduction modulo 65535, after each addition. It keeps the sums far below 2^32.
std::uint32_t folded(std::uint32_t sum) { return (sum & 0xffff) + (sum >> 16); }

/// Returns HDF5's checksum: sums of 16-bit words, the high byte first, modulo 65535.
std::uint32_t fletcher32(const Bytes& data, std::size_t bytes) {
  std::uint32_t first = 0, second = 0;
  for (std::size_t i = 0; i < bytes; i += 2) {
    const auto low = i + 1 < bytes ? std::to_integer<std::uint32_t>(data[i + 1]) : 0;
    first = folded(first + (std::to_integer<std::uint32_t>(data[i]) << 8 | low));
    second = folded(second + first);
  }
  return folded(second) << 16 | folded(first);
}

Bytes strip_checksum(Bytes data) {
  if (data.size() < kChecksumBytes) bad("has a chunk that is too short for its checksum");
  const std::size_t bytes = data.size() - kChecksumBytes;
  std::uint32_t stored = 0;
  for (std::size_t i = 0; i < kChecksumBytes; ++i)
    stored |= std::to_integer<std::uint32_t>(data[bytes + i]) << (8 * i);
  const std::uint32_t sum = fletcher32(data, bytes);
  const std::uint32_t swapped = (sum & 0xff00ff) << 8 | (sum >> 8 & 0xff00ff);  // of HDF5 before 1.6.3
  if (stored != sum && stored != swapped) bad("has a damaged chunk: its fletcher32 checksum differs");
  data.resize(bytes);
  return data;
}

// The shuffle filter stores byte 0 of all elements, then byte 1, ..
Bytes unshuffled(const Bytes& data, std::size_t element_bytes) {
  const std::size_t count = element_bytes > 0 ? data.size() / element_bytes : 0;
  Bytes out = data;  // remaining bytes stay at the end
  for (std::size_t byte = 0; count > 1 && byte < element_bytes; ++byte)
    for (std::size_t i = 0; i < count; ++i) out[i * element_bytes + byte] = data[byte * count + i];
  return out;
}

struct Inflater {
  z_stream stream{};
  Inflater() {
    if (inflateInit(&stream) != Z_OK) throw std::bad_alloc();
  }
  ~Inflater() { inflateEnd(&stream); }
  Inflater(const Inflater&) = delete;  // owns zlib's state
  Inflater& operator=(const Inflater&) = delete;
};

Bytes inflated(Bytes& data, std::size_t bytes) {
  // Checked before allocation: a few stored bytes must not claim a chunk of 1 GiB.
  if (bytes > kSmallestStream && data.size() < bytes / kLargestCompression)
    bad("has a chunk of {} bytes, but {} are stored: it is damaged", bytes, data.size());
  Bytes out(bytes);
  Inflater inflater;
  auto& stream = inflater.stream;
  stream.next_in = reinterpret_cast<Bytef*>(data.data());
  stream.avail_in = static_cast<uInt>(data.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(bytes);
  const int status = inflate(&stream, Z_FINISH);
  if (status == Z_STREAM_END && stream.total_out == bytes) return out;
  if (status == Z_STREAM_END) bad("has a chunk that expands to {} bytes of {}", stream.total_out, bytes);
  if (status == Z_BUF_ERROR && stream.avail_out == 0)
    bad("has a chunk that expands to more than {} bytes", bytes);
  bad("has a damaged chunk: its gzip data is invalid");
}

}  // namespace

ChunkFilters::ChunkFilters(hid_t creation) {
  bool deflated = false;
  const int count = H5Pget_nfilters(creation);
  for (int i = 0; i < count; ++i) {
    unsigned flags = 0, configuration = 0;
    std::array<unsigned, 8> values{};
    std::size_t given = values.size();
    std::array<char, 64> label{};
    const auto id = H5Pget_filter2(creation, static_cast<unsigned>(i), &flags, &given, values.data(),
                                   label.size() - 1, label.data(), &configuration);
    const bool known = id == H5Z_FILTER_DEFLATE || id == H5Z_FILTER_SHUFFLE || id == H5Z_FILTER_FLETCHER32;
    // Two deflate filters would need the unknown size between them.
    if (!known || (id == H5Z_FILTER_DEFLATE && std::exchange(deflated, true)))
      bad("is compressed with filter {} ({}): gzip (once), shuffle and fletcher32 are read: repack it with "
          "h5repack -f GZIP=4",
          static_cast<int>(id), label.data());
    filters_.push_back({id, given > 0 ? values[0] : 0});
  }
}

std::vector<std::byte> ChunkFilters::decode(std::vector<std::byte> stored, unsigned skipped,
                                            std::size_t bytes) const {
  std::size_t checksums = 0;
  for (std::size_t i = 0; i < filters_.size(); ++i)
    checksums += filters_[i].id == H5Z_FILTER_FLETCHER32 && (skipped >> i & 1) == 0;
  // Filters are undone in the reverse order of writing. Bit i of `skipped` marks a filter that was not
  // applied to this chunk.
  for (std::size_t i = filters_.size(); i-- > 0;) {
    if ((skipped >> i & 1) != 0) continue;
    if (filters_[i].id == H5Z_FILTER_FLETCHER32) {
      stored = strip_checksum(std::move(stored));
      --checksums;
    } else if (filters_[i].id == H5Z_FILTER_SHUFFLE) {
      stored = unshuffled(stored, filters_[i].element_bytes);
    } else {
      stored = inflated(stored, bytes + checksums * kChecksumBytes);
    }
  }
  if (stored.size() != bytes) bad("has a chunk of {} bytes, expected {}", stored.size(), bytes);
  return stored;
}

}  // namespace fq::detail::h5
