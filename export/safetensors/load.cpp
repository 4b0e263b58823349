#include <algorithm>
#include <bit>
#include <unordered_map>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/io/detail/file_reader.h"
#include "fakequant/export/safetensors/detail/header.h"

static_assert(std::endian::native == std::endian::little, "tensors are read and written as they lie");

namespace fq {
namespace {

constexpr std::int64_t kLengthBytes = 8;
constexpr std::uint64_t kLongestHeader = 100'000'000;  // limit of the reference reader

[[noreturn]] void fail(const std::string& path, const std::string& tensor, const std::string& why) {
  throw FileError(path, tensor, fmt::format("[load_safetensors] {}: {}", path, why));
}

// The length is untrusted: it is compared with the size of the file before memory is allocated.
std::string header_text(const detail::FileReader& file) {
  std::uint64_t length = 0;
  if (file.size() < kLengthBytes) fail(file.path(), {}, "it is too short to be a safetensors file");
  file.read(0, &length, sizeof length);
  const auto room = static_cast<std::uint64_t>(file.size() - kLengthBytes);
  if (length > std::min(room, kLongestHeader))
    fail(file.path(), {},
         fmt::format("its header claims {} bytes, at most {} are possible: the file is not safetensors, or "
                     "is truncated",
                     length, std::min(room, kLongestHeader)));
  std::string text(length, '\0');
  file.read(kLengthBytes, text.data(), text.size());
  return text;
}

}  // namespace

struct SafetensorsFile::Body {
  explicit Body(const std::string& path) : file(path) {
    const std::string text = header_text(file);
    data = kLengthBytes + static_cast<std::int64_t>(text.size());
    try {
      // The parser checks that the tensors cover the data exactly, so `read` stays within the file.
      header = detail::parse_safetensors_header(text, file.size() - data);
    } catch (const detail::BadHeader& error) {
      fail(path, {}, fmt::format("its header is damaged: {}", error.what()));
    }
    for (std::size_t i = 0; i < header.entries.size(); ++i) entry_indices[header.entries[i].name] = i;
  }

  detail::FileReader file;
  std::int64_t data = 0;  // begin of the data
  detail::SafetensorsHeader header;
  // The keys point into `header`, which does not change after construction.
  std::unordered_map<std::string_view, std::size_t> entry_indices;
};

SafetensorsFile::SafetensorsFile(const std::string& path) : body_(std::make_unique<Body>(path)) {}
SafetensorsFile::~SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;

const std::vector<SafetensorsEntry>& SafetensorsFile::entries() const noexcept {
  return body_->header.entries;
}

const std::map<std::string, std::string>& SafetensorsFile::metadata() const noexcept {
  return body_->header.metadata;
}

bool SafetensorsFile::contains(std::string_view name) const { return body_->entry_indices.contains(name); }

const SafetensorsEntry& SafetensorsFile::entry(std::string_view name) const {
  if (const auto found = body_->entry_indices.find(name); found != body_->entry_indices.end())
    return entries()[found->second];
  std::vector<std::string> names;
  for (const auto& other : entries()) names.push_back(other.name);
  FQ_CHECK(false, "load_safetensors", "{} has no '{}'{}", body_->file.path(), name,
           detail::did_you_mean(name, names));
  // Unreachable: the check above throws.
  return entries().front();
}

Tensor SafetensorsFile::read(std::string_view name) const {
  const SafetensorsEntry& from = entry(name);
  // A BOOL is a byte of 0 or 1.
  const auto dtype = from.dtype == "BOOL" ? DType::u8 : detail::safetensors_type(from.dtype)->dtype;
  if (!dtype)
    fail(body_->file.path(), from.name,
         fmt::format("'{}' is {}: this type is not supported", name, from.dtype));
  Tensor out = Tensor::empty(from.shape, *dtype);
  const auto bytes = static_cast<std::size_t>(from.end - from.begin);
  if (bytes > 0) body_->file.read(body_->data + from.begin, out.mutable_raw(), bytes);
  return out;
}

}  // namespace fq
