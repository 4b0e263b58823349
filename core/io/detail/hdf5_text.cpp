#include "fakequant/core/io/detail/hdf5_text.h"

#include <cstring>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/utf8.h"

namespace fq::detail::h5 {
namespace {

constexpr std::size_t kMostTexts = std::size_t{1} << 20;
constexpr std::size_t kMostTextBytes = std::size_t{16} << 20;

std::string without_padding(const char* begin, std::size_t size, H5T_str_t padding) {
  std::string text(begin, ::strnlen(begin, size));
  if (padding == H5T_STR_SPACEPAD) text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

/// Strings that HDF5 allocated, given back to it.
class VariableTexts {
 public:
  VariableTexts(hid_t type, hid_t space, std::size_t count) : type_(type), space_(space), texts_(count) {}
  ~VariableTexts() { H5Dvlen_reclaim(type_, space_, H5P_DEFAULT, texts_.data()); }
  VariableTexts(const VariableTexts&) = delete;  // owns what HDF5 allocated
  VariableTexts& operator=(const VariableTexts&) = delete;

  [[nodiscard]] char** data() { return texts_.data(); }
  [[nodiscard]] std::size_t bytes() const {
    std::size_t sum = 0;
    for (const char* text : texts_) sum += text == nullptr ? 0 : std::strlen(text);
    return sum;
  }
  [[nodiscard]] std::vector<std::string> values() const {
    std::vector<std::string> out;
    for (const char* text : texts_) out.push_back(valid_utf8(text == nullptr ? "" : text));
    return out;
  }

 private:
  hid_t type_, space_;
  std::vector<char*> texts_;
};

/// What is read, and what messages say of it.
struct TextSource {
  hid_t attribute, type;
  std::size_t count;
  const std::string &path, &object, &name;

  void fits(bool condition) const {
    if (condition) return;
    throw FileError(
        path, object,
        fmt::format("[hdf5] {}:{} has an attribute '{}' of more than 2^20 strings or 16 MiB: shorten it",
                    path, object, name));
  }
  void read(void* out) const {
    check(H5Aread(attribute, type, out), path, object, fmt::format("has an unreadable attribute '{}'", name));
  }
};

std::vector<std::string> variable_texts(const TextSource& from, hid_t space) {
  VariableTexts texts(from.type, space, from.count);
  from.read(texts.data());
  from.fits(texts.bytes() <= kMostTextBytes);
  return texts.values();
}

std::vector<std::string> fixed_texts(const TextSource& from) {
  const std::size_t size = H5Tget_size(from.type);
  from.fits(size > 0 && size <= kMostTextBytes / from.count);
  std::vector<char> bytes(size * from.count);
  from.read(bytes.data());
  std::vector<std::string> out;
  for (std::size_t i = 0; i < from.count; ++i)
    out.push_back(valid_utf8(without_padding(&bytes[i * size], size, H5Tget_strpad(from.type))));
  return out;
}

}  // namespace

std::optional<std::vector<std::string>> read_texts(hid_t attribute, const std::string& path,
                                                   const std::string& object, const std::string& name) {
  const Type type(H5Aget_type(attribute));
  if (H5Tget_class(type.get()) != H5T_STRING) return std::nullopt;
  const Space space(H5Aget_space(attribute));
  const auto points = check(H5Sget_simple_extent_npoints(space.get()), path, object, "has no readable shape");
  const TextSource from{attribute, type.get(), static_cast<std::size_t>(points), path, object, name};
  from.fits(from.count <= kMostTexts);
  if (from.count == 0) return std::vector<std::string>{};
  return H5Tis_variable_str(type.get()) > 0 ? variable_texts(from, space.get()) : fixed_texts(from);
}

}  // namespace fq::detail::h5
