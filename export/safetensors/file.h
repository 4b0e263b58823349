#pragma once

/// safetensors files: a header of JSON, then the bytes of tensors. They are written by ourselves and read
/// from anyone.
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

/// Tensors by name, in any order. To be saved they lie on the CPU, in any layout.
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

/// Writes the bytes that the reference's writer gives: tensors by dtype, the widest first, then by name; the
/// header padded with spaces to a multiple of 8. The file is written beside, synced and renamed. `metadata`
/// are texts for whoever reads it.
///
/// f64 to bf16, i8 to i64, u8, u16, f8_* and f4_e2m1 have types there; integers of fewer than 8 bits have
/// none, pack them as u8. Throws ArgumentError for other types, a tensor that is not on the CPU, an odd
/// number of f4_e2m1 elements, a name that is empty, "__metadata__", not UTF-8 or there twice; FileError,
/// SystemError as other files do.
void save_safetensors(const std::string& path, const NamedTensors& tensors,
                      const std::map<std::string, std::string>& metadata = {});

/// The same to a file that the caller commits, together with others.
void save_safetensors(AtomicFile& file, const NamedTensors& tensors,
                      const std::map<std::string, std::string>& metadata = {});

/// The CRC-32C of what follows the header when they are saved. Throws ArgumentError as above.
[[nodiscard]] std::uint32_t safetensors_checksum(const NamedTensors& tensors);

/// What the header says of one tensor.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;  ///< as the file says: "F32", "F8_E4M3"
  Shape shape;
  std::int64_t begin = 0, end = 0;  ///< bytes, from the end of the header
};

/// The header of a file, and its tensors when they are asked for: a file that does not fit into memory can be
/// read one tensor at a time.
class SafetensorsFile {
 public:
  /// Checks all of the header. Throws FileError for a file that is none: a header longer than the file or
  /// than 100 MB, text that is not JSON of just this structure, a type that the format has not, sizes that do
  /// not fit each other, tensors that overlap, leave a hole, or do not end with the file; names twice, and
  /// more than 65536 texts of metadata. What is allocated is at most some times the length of the header.
  explicit SafetensorsFile(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

  /// All tensors of the file, in the order of their bytes.
  [[nodiscard]] const std::vector<SafetensorsEntry>& entries() const noexcept;
  /// The texts of metadata; empty where the file has none.
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const noexcept;
  [[nodiscard]] bool contains(std::string_view name) const;
  /// What the header says of the tensor of that name. Throws ArgumentError naming the nearest names.
  [[nodiscard]] const SafetensorsEntry& entry(std::string_view name) const;
  /// Reads the tensor, to the CPU, row-major; BOOL as u8. Throws as `entry`, and FileError for a type that no
  /// tensor of ours has (U32, U64, C64, F6_*) and a file that was cut meanwhile.
  [[nodiscard]] Tensor read(std::string_view name) const;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace fq
