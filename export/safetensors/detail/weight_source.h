#pragma once

/// Reads tensors by name from one safetensors file, or from several files with an index.

#include <map>
#include <string>
#include <vector>

#include "fakequant/export/safetensors/detail/packed_layers.h"

namespace fq::detail {

class WeightSource {
 public:
  /// `path` is a safetensors file or an index (`*.index.json`). Throws FileError for other files and
  /// describes the conversion. Also throws for an index that names a file outside its folder, for a missing
  /// file, and for a tensor that is not in its file.
  explicit WeightSource(const std::string& path);

  /// Returns all tensors, in the order of the files.
  [[nodiscard]] const std::vector<SafetensorsEntry>& entries() const noexcept { return entries_; }
  /// Reads a tensor. Throws as SafetensorsFile::read.
  [[nodiscard]] Tensor read(const std::string& name) const;
  /// Returns the packed weights of the files. `entries` and `read` return them as F32 and hide their scales
  /// and other helper tensors.
  [[nodiscard]] const PackedFile& packed() const noexcept { return packed_; }

 private:
  void add(const std::string& path);
  void unpack(const std::string& path);

  std::vector<SafetensorsFile> files_;
  std::vector<SafetensorsEntry> entries_;
  PackedFile packed_;
  std::map<std::string, Tensor> unpacked_;
  std::map<std::string, std::size_t, std::less<>> place_;
};

}  // namespace fq::detail
