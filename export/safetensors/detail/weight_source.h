#pragma once

/// Tensors by name from one safetensors file, or from several with an index.

#include <map>
#include <string>
#include <vector>

#include "fakequant/export/safetensors/detail/packed_layers.h"

namespace fq::detail {

class WeightSource {
 public:
  /// `path` is a safetensors file or an index (`*.index.json`). Throws FileError for what is none, naming the
  /// way to make one; for an index that names a file outside of its folder, a file that is not there, a
  /// tensor that its file has not.
  explicit WeightSource(const std::string& path);

  /// All tensors, in the order of the files.
  [[nodiscard]] const std::vector<SafetensorsEntry>& entries() const noexcept { return entries_; }
  /// Throws as SafetensorsFile::read.
  [[nodiscard]] Tensor read(const std::string& name) const;
  /// The weights that the files have as codes; `entries` and `read` have them as F32, without what belongs to
  /// them.
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
