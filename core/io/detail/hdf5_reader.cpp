#include "fakequant/core/io/detail/hdf5_reader.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/io/detail/hdf5.h"
#include "fakequant/core/io/detail/hdf5_rows.h"

namespace fq::detail::h5 {
namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& name, std::string_view why) {
  throw FileError(path, name, fmt::format("[hdf5] {}:{} {}", path, name, why));
}

void check_hard(H5L_type_t type, const std::string& path, const std::string& name) {
  if (type != H5L_TYPE_HARD)
    refuse(path, name,
           "is a soft or external link, which is not followed: store the object itself, as h5copy does");
}

/// Returns whether the file has an object of that name ("train/x"). Soft and external links are rejected,
/// because HDF5 would follow them to other files, pipes and devices. Throws FileError if a step of the name
/// is a soft, external or user-defined link. `path` is the file's, for messages.
bool has_object(hid_t file, const std::string& path, const std::string& name) {
  const Lock lock;
  for (std::size_t begin = 0; begin < name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    // HDF5 follows links in the middle of a name too, so every prefix is checked.
    const std::string step = name.substr(0, end);
    begin = end + 1;
    if (step.empty() || step.back() == '/') continue;
    if (H5Lexists(file, step.c_str(), H5P_DEFAULT) <= 0) return false;
    H5L_info_t info{};
    check(H5Lget_info(file, step.c_str(), &info, H5P_DEFAULT), path, step, "is an unreadable link");
    check_hard(info.type, path, step);
  }
  return true;
}

// Limits of memory that an attribute may claim.
constexpr std::size_t kMostTexts = std::size_t{1} << 20;
constexpr std::size_t kMostTextBytes = std::size_t{16} << 20;

std::string strip_padding(const char* begin, std::size_t size, H5T_str_t padding) {
  std::string text(begin, ::strnlen(begin, size));
  // Fortran programs pad with spaces.
  if (padding == H5T_STR_SPACEPAD) text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

/// Owns strings that HDF5 allocated.
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

/// An attribute to read, and its names in messages.
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
    out.push_back(valid_utf8(strip_padding(&bytes[i * size], size, H5Tget_strpad(from.type))));
  return out;
}

/// Returns the values of an open attribute of strings as UTF-8, like Hdf5Reader::texts; nullopt for another
/// type. `path`, `object` and `name` are for messages. The caller must hold the lock.
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

}  // namespace
}  // namespace fq::detail::h5

namespace fq::detail {
namespace {

constexpr hsize_t kListed = 50;
constexpr hssize_t kMostValues = 1 << 20;
constexpr std::size_t kLongestName = 1 << 10;

bool is_number(hid_t type) {
  const auto kind = H5Tget_class(type);
  return kind == H5T_INTEGER || kind == H5T_FLOAT;
}

}  // namespace

struct Hdf5Reader::Body {
  std::string path;
  std::int64_t bytes;
  h5::File file;

  /// Opens an existing attribute. The caller must hold the lock.
  [[nodiscard]] h5::Attribute attribute(const std::string& object, const std::string& name) const {
    h5::Attribute found(
        H5Aopen_by_name(file.get(), h5::object_name(object), name.c_str(), H5P_DEFAULT, H5P_DEFAULT));
    h5::check(found.get(), path, object, fmt::format("has an unreadable attribute '{}'", name));
    return found;
  }
};

Hdf5Reader::Hdf5Reader(std::string path) {
  auto file = h5::open(path);
  const h5::Lock lock;
  hsize_t bytes = 0;
  h5::check(H5Fget_filesize(file.get(), &bytes), path, "", "has no size");
  body_ = std::make_unique<Body>(Body{std::move(path), static_cast<std::int64_t>(bytes), std::move(file)});
}

Hdf5Reader::~Hdf5Reader() = default;

const std::string& Hdf5Reader::path() const noexcept { return body_->path; }

bool Hdf5Reader::has(const std::string& name) const {
  return h5::has_object(body_->file.get(), path(), name);
}

std::vector<std::string> Hdf5Reader::children(const std::string& group) const {
  const h5::Lock lock;
  const char* at = h5::object_name(group);
  H5G_info_t info{};
  h5::check(H5Gget_info_by_name(body_->file.get(), at, &info, H5P_DEFAULT), path(), group, "is not a group");
  std::vector<std::string> names;
  // The names appear in messages: a few of them are enough.
  for (hsize_t i = 0; i < std::min(info.nlinks, kListed); ++i) {
    std::string name(kLongestName, '\0');
    const auto length = H5Lget_name_by_idx(body_->file.get(), at, H5_INDEX_NAME, H5_ITER_INC, i, name.data(),
                                           name.size(), H5P_DEFAULT);
    h5::check(length, path(), group, "cannot be listed");
    name.resize(std::min(static_cast<std::size_t>(length), kLongestName - 1));
    // Names come from the file and go into messages: control characters are escaped.
    names.push_back(one_line_name(std::move(name)));
  }
  return names;
}

Hdf5Rows Hdf5Reader::rows(const std::string& dataset) const {
  const h5::Lock lock;
  if (!has(dataset)) throw FileError(path(), dataset, fmt::format("[hdf5] {} has no {}", path(), dataset));
  const h5::Properties access(FQ_CALL(H5Pcreate(H5P_DATASET_ACCESS), "hdf5"));
  FQ_CALL(H5Pset_chunk_cache(access.get(), 0, 0, 0), "hdf5");  // no cache: the caller caches rows itself
  h5::Dataset open(H5Dopen2(body_->file.get(), dataset.c_str(), access.get()));
  if (!open) h5::fail(path(), dataset, "is not a dataset that can be opened");
  return Hdf5Rows(std::make_unique<Hdf5Rows::Body>(path(), dataset, std::move(open), body_->bytes));
}

bool Hdf5Reader::has_attribute(const std::string& object, const std::string& name) const {
  const h5::Lock lock;
  const auto exists =
      H5Aexists_by_name(body_->file.get(), h5::object_name(object), name.c_str(), H5P_DEFAULT);
  h5::check(exists, path(), object, "has unreadable attributes");
  return exists > 0;
}

bool Hdf5Reader::has_numbers(const std::string& object, const std::string& name) const {
  if (!has_attribute(object, name)) return false;
  const h5::Lock lock;
  const auto attribute = body_->attribute(object, name);
  const h5::Type type(H5Aget_type(attribute.get()));
  return is_number(type.get());
}

std::optional<std::vector<double>> Hdf5Reader::numbers(const std::string& object,
                                                       const std::string& name) const {
  if (!has_attribute(object, name)) return std::nullopt;
  const h5::Lock lock;
  const auto attribute = body_->attribute(object, name);
  const h5::Type type(H5Aget_type(attribute.get()));
  const h5::Space space(H5Aget_space(attribute.get()));
  const auto count = H5Sget_simple_extent_npoints(space.get());
  if (!is_number(type.get()) || count < 0 || count > kMostValues)
    throw FileError(path(), object,
                    fmt::format("[hdf5] {}:{} has an attribute '{}' that is not a number or a list of them",
                                path(), object, name));
  std::vector<double> values(static_cast<std::size_t>(count));
  if (count > 0)
    h5::check(H5Aread(attribute.get(), H5T_NATIVE_DOUBLE, values.data()), path(), object,
              "has an unreadable attribute");
  return values;
}

std::optional<std::vector<std::string>> Hdf5Reader::texts(const std::string& object,
                                                          const std::string& name) const {
  if (!has_attribute(object, name)) return std::nullopt;
  const h5::Lock lock;
  return h5::read_texts(body_->attribute(object, name).get(), path(), object, name);
}

}  // namespace fq::detail
