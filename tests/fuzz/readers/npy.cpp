#include "fakequant/train/data/reader/array_file.h"
#include "reader.h"

namespace {

void take(fq::detail::ArrayFile array) { array.is_text() ? void(array.texts()) : void(array.read_all()); }

}  // namespace

/// An array, or those of an archive.
void fq::fuzz::read_npy(const std::string& path) {
  const auto keys = detail::npz_keys(path);
  for (const auto& key : keys) take(detail::open_npy(path, key));
  if (keys.empty()) take(detail::open_npy(path));
}
