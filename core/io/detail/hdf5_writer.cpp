#include "fakequant/core/io/detail/hdf5_writer.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/core/io/detail/hdf5_driver.h"

namespace fq::detail {
namespace {

constexpr const char* kName = "write_hdf5";
constexpr std::int64_t kChunkBytes = std::int64_t{1} << 20;
constexpr std::size_t kAttributeBytes = 48 << 10;  // HDF5 keeps at most 64 KiB beside an object

h5::Type type_of(DType dtype) {
  return dtype == DType::f16 ? h5::half_type() : h5::Type(FQ_CALL(H5Tcopy(h5::storage_type(dtype)), kName));
}

}  // namespace

/// Rows that wait until they fill a chunk.
struct OpenRows {
  h5::Dataset dataset;
  h5::Type type;
  Shape row;
  std::int64_t row_bytes, chunk_rows, written = 0;
  std::vector<std::byte> waiting;

  [[nodiscard]] std::int64_t waiting_rows() const {
    return static_cast<std::int64_t>(waiting.size()) / row_bytes;
  }

  void flush() {
    const std::int64_t count = waiting_rows();
    if (count == 0) return;
    const h5::Lock lock;
    std::vector<hsize_t> begin{hsize_t(written)}, size{hsize_t(count)}, extent{hsize_t(written + count)};
    begin.resize(row.size() + 1, 0);
    for (auto* sizes : {&size, &extent}) sizes->insert(sizes->end(), row.begin(), row.end());
    FQ_CALL(H5Dset_extent(dataset.get(), extent.data()), kName);
    const h5::Space memory(FQ_CALL(H5Screate_simple(int(size.size()), size.data(), nullptr), kName));
    const h5::Space file(FQ_CALL(H5Dget_space(dataset.get()), kName));
    FQ_CALL(H5Sselect_hyperslab(file.get(), H5S_SELECT_SET, begin.data(), nullptr, size.data(), nullptr),
            kName);
    FQ_CALL(H5Dwrite(dataset.get(), type.get(), memory.get(), file.get(), H5P_DEFAULT, waiting.data()),
            kName);
    written += count;
    waiting.clear();
  }
};

namespace {

h5::Dataset make_dataset(hid_t file, const std::string& name, hid_t type, const OpenRows& rows) {
  const h5::Properties links(FQ_CALL(H5Pcreate(H5P_LINK_CREATE), kName));
  const h5::Properties creation(FQ_CALL(H5Pcreate(H5P_DATASET_CREATE), kName));
  const h5::Properties access(FQ_CALL(H5Pcreate(H5P_DATASET_ACCESS), kName));
  std::vector<hsize_t> chunk{hsize_t(rows.chunk_rows)}, none{0}, most{H5S_UNLIMITED};
  for (auto* sizes : {&chunk, &none, &most}) sizes->insert(sizes->end(), rows.row.begin(), rows.row.end());
  FQ_CALL(H5Pset_create_intermediate_group(links.get(), 1), kName);
  FQ_CALL(H5Pset_obj_track_times(creation.get(), false), kName);
  FQ_CALL(H5Pset_chunk(creation.get(), int(chunk.size()), chunk.data()), kName);
  FQ_CALL(H5Pset_chunk_cache(access.get(), 0, 0, 0), kName);  // chunks are written once, whole
  const h5::Space space(FQ_CALL(H5Screate_simple(int(none.size()), none.data(), most.data()), kName));
  return h5::Dataset(FQ_CALL(
      H5Dcreate2(file, name.c_str(), type, space.get(), links.get(), creation.get(), access.get()), kName));
}

h5::Type text_type(std::size_t bytes) {
  h5::Type type(FQ_CALL(H5Tcopy(H5T_C_S1), kName));
  FQ_CALL(H5Tset_size(type.get(), bytes), kName);
  FQ_CALL(H5Tset_cset(type.get(), H5T_CSET_UTF8), kName);
  FQ_CALL(H5Tset_strpad(type.get(), H5T_STR_NULLPAD), kName);
  return type;
}

}  // namespace

struct Hdf5Writer::Body {
  std::string path;
  AtomicFile target;
  h5::DescriptorFile file;
  std::map<std::string, OpenRows> open;

  explicit Body(const std::string& to) : path(to), target(to), file(target.descriptor()) {}

  void check_disk() const {
    if (file.error() != 0)
      throw SystemError(fmt::format("[write_file] {} cannot be written: {}", path,
                                    std::generic_category().message(file.error())));
  }

  OpenRows& rows(const std::string& name) {
    const auto found = open.find(name);
    FQ_CHECK(found != open.end(), kName, "there is no {}: create it first", name);
    return found->second;
  }

  void put(const std::string& object, const std::string& name, hid_t type, hid_t space, const void* data) {
    const h5::Attribute made(FQ_CALL(H5Acreate_by_name(file.id(), h5::place_of(object), name.c_str(), type,
                                                       space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
                                     kName));
    FQ_CALL(H5Awrite(made.get(), type, data), kName);
  }
};

Hdf5Writer::Hdf5Writer(const std::string& path) : body_(std::make_unique<Body>(path)) {}
Hdf5Writer::~Hdf5Writer() = default;

void Hdf5Writer::create(const std::string& name, DType dtype, const Shape& row, std::int64_t rows) {
  FQ_CHECK(!body_->open.contains(name), kName, "{} is there already: use another name", name);
  const h5::Lock lock;
  const std::int64_t bytes = numel(row) * bit_width(dtype) / 8;
  OpenRows made{
      .dataset = {},
      .type = type_of(dtype),
      .row = row,
      .row_bytes = bytes,
      .chunk_rows = std::clamp<std::int64_t>(kChunkBytes / bytes, 1, std::max<std::int64_t>(rows, 1)),
      .waiting = {}};
  made.dataset = make_dataset(body_->file.id(), name, made.type.get(), made);
  body_->open.emplace(name, std::move(made));
}

void Hdf5Writer::append(const std::string& name, const void* rows, std::int64_t count) {
  OpenRows& to = body_->rows(name);
  const auto* from = static_cast<const std::byte*>(rows);
  while (count > 0) {
    const std::int64_t part = std::min(count, to.chunk_rows - to.waiting_rows());
    to.waiting.insert(to.waiting.end(), from, from + part * to.row_bytes);
    from += part * to.row_bytes;
    count -= part;
    if (to.waiting_rows() == to.chunk_rows) to.flush();
  }
  body_->check_disk();
}

std::int64_t Hdf5Writer::rows(const std::string& name) const {
  const OpenRows& found = body_->rows(name);
  return found.written + found.waiting_rows();
}

void Hdf5Writer::write(const std::string& name, const Tensor& values) {
  const Shape row(values.shape().begin() + 1, values.shape().end());
  create(name, values.dtype(), row, values.dim(0));
  append(name, values.raw(), values.dim(0));
}

void Hdf5Writer::attribute(const std::string& object, const std::string& name,
                           std::span<const double> numbers) {
  const h5::Lock lock;
  const hsize_t count = numbers.size();
  const h5::Space space(
      FQ_CALL(count == 1 ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &count, nullptr), kName));
  body_->put(object, name, H5T_NATIVE_DOUBLE, space.get(), numbers.data());
}

void Hdf5Writer::attribute(const std::string& object, const std::string& name, const std::string& text) {
  const h5::Lock lock;
  const h5::Space space(FQ_CALL(H5Screate(H5S_SCALAR), kName));
  if (text.size() <= kAttributeBytes) {
    const std::string filled = text.empty() ? std::string(1, '\0') : text;
    return body_->put(object, name, text_type(filled.size()).get(), space.get(), filled.data());
  }
  const char* begin = text.c_str();
  body_->put(object, name, text_type(H5T_VARIABLE).get(), space.get(), &begin);
}

void Hdf5Writer::attribute(const std::string& object, const std::string& name,
                           const std::vector<std::string>& texts) {
  std::size_t longest = 1;
  for (const auto& text : texts) longest = std::max(longest, text.size());
  if (texts.size() < 2 || longest * texts.size() > kAttributeBytes)
    return attribute(object, name, nlohmann::json(texts).dump());
  const h5::Lock lock;
  std::string all(longest * texts.size(), '\0');
  for (std::size_t i = 0; i < texts.size(); ++i) texts[i].copy(all.data() + i * longest, longest);
  const hsize_t count = texts.size();
  const h5::Space space(FQ_CALL(H5Screate_simple(1, &count, nullptr), kName));
  body_->put(object, name, text_type(longest).get(), space.get(), all.data());
}

void Hdf5Writer::commit() {
  for (auto& [name, rows] : body_->open) rows.flush();
  body_->open.clear();
  body_->file.close();
  body_->check_disk();
  body_->target.commit();
}

}  // namespace fq::detail
