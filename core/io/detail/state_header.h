#pragma once

/// The 512-byte user block before our HDF5 files, and the list of datasets at their end. docs/formats.md
/// describes both.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "fakequant/core/blocks/shape.h"
#include "fakequant/core/io/detail/file_reader.h"

namespace fq::detail {

inline constexpr std::int64_t kHeaderBytes = 512;
inline constexpr std::uint32_t kFormatVersion = 1;

/// Contents of the user block. Lengths are in bytes.
struct StateHeader {
  std::uint32_t version = kFormatVersion;
  std::uint32_t body_crc = 0;      ///< CRC-32C of everything after the user block
  std::int64_t body_bytes = 0;     ///< length of everything after the user block
  std::int64_t listing_bytes = 0;  ///< length of the listing (JSON) at the end of the body
  std::uint32_t listing_crc = 0;
  std::string kind;  ///< "checkpoint", "scales", ..: up to 31 bytes
};

/// Type and position of a dataset: all that is needed to read it.
struct ListedDataset {
  std::string name;
  std::int64_t offset = 0;  ///< from the start of the file
  std::int64_t bytes = 0;
  std::uint32_t crc = 0;
  std::string dtype = {};  ///< "f32", ..; kListedJson of attributes; empty in old files
  Shape shape = {};
};
inline constexpr std::string_view kListedJson = "json";
inline constexpr std::int64_t kLargestListed = std::int64_t{1} << 56;  ///< of sizes, offsets and lengths

[[nodiscard]] std::array<unsigned char, kHeaderBytes> encode(const StateHeader& header);
[[nodiscard]] std::string encode(const std::vector<ListedDataset>& listing);

/// Reads and checks the user block, not the body. Throws FileError for a foreign, damaged, newer or
/// truncated file.
[[nodiscard]] StateHeader read_header(const FileReader& file);
/// Throws FileError that names the part.
[[noreturn]] void refuse_part(const FileReader& file, const std::string& name, const std::string& why);
/// Reads and checks the body. Throws FileError that names the damaged dataset, or the file if the damage is
/// elsewhere.
void verify_body(const FileReader& file, const StateHeader& header);
/// Returns the listing. All parts must be between header and listing. Throws FileError, or json::exception
/// for an invalid listing.
[[nodiscard]] std::vector<ListedDataset> read_listing(const FileReader& file, const StateHeader& header);

}  // namespace fq::detail
