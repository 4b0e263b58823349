#include "fakequant/core/error.h"
#include "fakequant/export/safetensors/file.h"
#include "reader.h"

/// Types that no tensor of ours has are refused by the tensor.
void fq::fuzz::read_safetensors(const std::string& path) {
  const SafetensorsFile file(path);
  for (const auto& entry : file.entries()) (void)file.read(entry.name);
}
