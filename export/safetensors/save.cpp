#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/core/io/detail/crc32c.h"
#include "fakequant/export/safetensors/detail/header.h"
#include "fakequant/export/safetensors/file.h"

namespace fq {
namespace {

using nlohmann::ordered_json;

constexpr const char* kWhere = "save_safetensors";
constexpr std::size_t kAlignment = 8;

void check(const NamedTensors& tensors) {
  std::set<std::string_view> names;
  for (const auto& [name, tensor] : tensors) {
    FQ_CHECK(!name.empty() && name != "__metadata__", kWhere, "a tensor cannot be named '{}'", name);
    FQ_CHECK(names.insert(name).second, kWhere, "'{}' is there twice", name);
    FQ_CHECK(tensor.defined() && tensor.device().is_cpu(), kWhere, "'{}' has no values on the CPU", name);
    FQ_CHECK(detail::safetensors_type(tensor.dtype()) != nullptr, kWhere,
             "'{}' is {}, which the format has no type for: pack codes as u8", name,
             fq::name(tensor.dtype()));
    // Two elements of 4 bits share a byte, and the format has no padding.
    FQ_CHECK(bit_width(tensor.dtype()) >= 8 || tensor.numel() % 2 == 0, kWhere,
             "'{}' has {} elements of 4 bits: their number must be even", name, tensor.numel());
  }
}

// Sorts as the reference writer: wide types first, so that each tensor is aligned to its elements.
NamedTensors sorted_tensors(NamedTensors tensors) {
  std::ranges::sort(tensors, [](const auto& a, const auto& b) {
    const int left = detail::safetensors_type(a.second.dtype())->rank;
    const int right = detail::safetensors_type(b.second.dtype())->rank;
    return left != right ? left > right : a.first < b.first;
  });
  return tensors;
}

std::string serialized_header(const NamedTensors& tensors,
                              const std::map<std::string, std::string>& metadata) {
  // The entries have the order of the data.
  ordered_json header = ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::int64_t begin = 0;
  for (const auto& [name, tensor] : tensors) {
    const std::int64_t end = begin + tensor.nbytes();
    header[name] = {{"dtype", detail::safetensors_type(tensor.dtype())->name},
                    {"shape", tensor.shape()},
                    {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const ordered_json::exception&) {
    FQ_CHECK(false, kWhere, "a name or the metadata is not UTF-8 text");
  }
  // Spaces after the JSON align the data.
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  return text;
}

}  // namespace

void save_safetensors(const std::string& path, const NamedTensors& tensors,
                      const std::map<std::string, std::string>& metadata) {
  AtomicFile file(path);
  save_safetensors(file, tensors, metadata);
  file.commit();
}

std::uint32_t safetensors_checksum(const NamedTensors& tensors) {
  check(tensors);
  // Covers only the data. The metadata in the header may differ for equal weights.
  std::uint32_t crc = 0;
  for (const auto& [name, tensor] : sorted_tensors(tensors)) {
    const Tensor rows = tensor.to(Layout::row_major);
    if (rows.nbytes() > 0) crc = crc32c(rows.raw(), static_cast<std::size_t>(rows.nbytes()), crc);
  }
  return crc;
}

void save_safetensors(AtomicFile& file, const NamedTensors& tensors,
                      const std::map<std::string, std::string>& metadata) {
  check(tensors);
  const NamedTensors ordered = sorted_tensors(tensors);
  const std::string header = serialized_header(ordered, metadata);
  // A file is the length of the header (u64), the header, and the data.
  const auto length = static_cast<std::uint64_t>(header.size());
  file.write(&length, sizeof length);
  file.write(header);
  for (const auto& [name, tensor] : ordered) {
    const Tensor rows = tensor.to(Layout::row_major);
    if (rows.nbytes() > 0) file.write(rows.raw(), static_cast<std::size_t>(rows.nbytes()));
  }
}

}  // namespace fq
