#include "fakequant/core/io/detail/hdf5_reader.h"

#include <algorithm>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/utf8.h"
#include "fakequant/core/io/detail/hdf5_links.h"
#include "fakequant/core/io/detail/hdf5_rows.h"
#include "fakequant/core/io/detail/hdf5_text.h"

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

  /// One that is there; the caller holds the lock.
  [[nodiscard]] h5::Attribute attribute(const std::string& object, const std::string& name) const {
    h5::Attribute found(
        H5Aopen_by_name(file.get(), h5::place_of(object), name.c_str(), H5P_DEFAULT, H5P_DEFAULT));
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
  const char* at = h5::place_of(group);
  H5G_info_t info{};
  h5::check(H5Gget_info_by_name(body_->file.get(), at, &info, H5P_DEFAULT), path(), group, "is not a group");
  std::vector<std::string> names;
  for (hsize_t i = 0; i < std::min(info.nlinks, kListed); ++i) {
    std::string name(kLongestName, '\0');
    const auto length = H5Lget_name_by_idx(body_->file.get(), at, H5_INDEX_NAME, H5_ITER_INC, i, name.data(),
                                           name.size(), H5P_DEFAULT);
    h5::check(length, path(), group, "cannot be listed");
    name.resize(std::min(static_cast<std::size_t>(length), kLongestName - 1));
    names.push_back(one_line_name(std::move(name)));
  }
  return names;
}

Hdf5Rows Hdf5Reader::rows(const std::string& dataset) const {
  const h5::Lock lock;
  if (!has(dataset)) throw FileError(path(), dataset, fmt::format("[hdf5] {} has no {}", path(), dataset));
  const h5::Properties access(FQ_CALL(H5Pcreate(H5P_DATASET_ACCESS), "hdf5"));
  FQ_CALL(H5Pset_chunk_cache(access.get(), 0, 0, 0), "hdf5");  // whoever reads keeps what is worth keeping
  h5::Dataset open(H5Dopen2(body_->file.get(), dataset.c_str(), access.get()));
  if (!open) h5::fail(path(), dataset, "is not a dataset that can be opened");
  return Hdf5Rows(std::make_unique<Hdf5Rows::Body>(path(), dataset, std::move(open), body_->bytes));
}

bool Hdf5Reader::has_attribute(const std::string& object, const std::string& name) const {
  const h5::Lock lock;
  const auto exists = H5Aexists_by_name(body_->file.get(), h5::place_of(object), name.c_str(), H5P_DEFAULT);
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
