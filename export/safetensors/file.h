#pragma once

/// safetensors files: a JSON header, then the bytes of tensors. The reader treats files as untrusted.
///
///     save_safetensors("weights.safetensors", {{"fc.weight", weight}, {"fc.bias", bias}});
///     const SafetensorsFile file("weights.safetensors");
///     const Tensor back = file.read("fc.weight");

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fakequant/core/tensor.h"

namespace fq {

class AtomicFile;

/// Named tensors, in any order. `save_safetensors` accepts CPU tensors of any layout.
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

/// Writes the same bytes as the reference writer: tensors sorted by dtype, the widest first, then by name.
/// The header is padded with spaces to a multiple of 8. Writes a temporary file, syncs it and renames it.
/// `metadata` is free text.
///
/// Supported types are f64 to bf16, i8 to i64, u8, u16, f8_* and f4_e2m1. Pack integers of fewer than 8 bits
/// as u8. Throws ArgumentError for other types, a tensor that is not on the CPU, an odd number of f4_e2m1
/// elements, and a name that is empty, "__metadata__", not UTF-8 or a duplicate. Throws FileError and
/// SystemError as other writers.
void save_safetensors(const std::string& path, const NamedTensors& tensors,
                      const std::map<std::string, std::string>& metadata = {});

/// Writes to a file that the caller commits, together with other files.
void save_safetensors(AtomicFile& file, const NamedTensors& tensors,
                      const std::map<std::string, std::string>& metadata = {});

/// Returns the CRC-32C of the data after the header. Throws ArgumentError as `save_safetensors`.
[[nodiscard]] std::uint32_t safetensors_checksum(const NamedTensors& tensors);

/// Header entry of one tensor.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;  ///< type in the file: "F32", "F8_E4M3"
  Shape shape;
  std::int64_t begin = 0, end = 0;  ///< bytes, from the end of the header
};

/// Reads the header of a file, and each tensor on demand, so that the file may be larger than the memory.
class SafetensorsFile {
 public:
  /// Checks the whole header. Throws FileError for a header that is longer than the file or 100 MB, text that
  /// is not JSON of exactly this structure, an unknown type, and inconsistent sizes. Also throws for tensors
  /// that overlap, leave a gap, or do not end with the file, for duplicate names, and for more than 65536
  /// metadata entries. Allocates at most a small multiple of the length of the header.
  explicit SafetensorsFile(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

  /// Returns all tensors of the file, in the order of their bytes.
  [[nodiscard]] const std::vector<SafetensorsEntry>& entries() const noexcept;
  /// Returns the metadata. Empty if the file has none.
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const noexcept;
  [[nodiscard]] bool contains(std::string_view name) const;
  /// Returns the header entry of a tensor. Throws ArgumentError that names the nearest names.
  [[nodiscard]] const SafetensorsEntry& entry(std::string_view name) const;
  /// Reads a tensor to the CPU, row-major. BOOL becomes u8. Throws as `entry`, and FileError for a type
  /// without a DType (U32, U64, C64, F6_*) and for a file that became shorter.
  [[nodiscard]] Tensor read(std::string_view name) const;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace fq
