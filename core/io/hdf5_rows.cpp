#include "fakequant/core/io/hdf5_rows.h"

#include <algorithm>
#include <array>

#include "fakequant/core/check.h"

namespace fq::detail {
namespace {

constexpr std::int64_t kLargestPiece = std::int64_t{1} << 30;  // a row, a chunk
constexpr std::int64_t kAlwaysRead = std::int64_t{256} << 20;  // whatever the file stores of it
constexpr std::int64_t kLargestCompression = 1100;             // deflate reaches 1032

bool is_half(hid_t type) {
  std::size_t sign = 0, exponent = 0, exponent_bits = 0, mantissa = 0, mantissa_bits = 0;
  return H5Tget_fields(type, &sign, &exponent, &exponent_bits, &mantissa, &mantissa_bits) >= 0 &&
         sign == 15 && exponent == 10 && exponent_bits == 5 && mantissa == 0 && mantissa_bits == 10 &&
         H5Tget_ebias(type) == 15;
}

std::optional<DType> integer_type(std::size_t bytes, bool is_signed) {
  if (bytes == 1) return is_signed ? DType::i8 : DType::u8;
  if (bytes == 2) return is_signed ? DType::i16 : DType::i32;
  if (bytes == 4) return is_signed ? DType::i32 : DType::i64;
  if (bytes == 8) return DType::i64;
  return std::nullopt;
}

std::optional<DType> element_type(hid_t type) {
  const std::size_t bytes = H5Tget_size(type);
  if (H5Tget_class(type) == H5T_INTEGER) return integer_type(bytes, H5Tget_sign(type) == H5T_SGN_2);
  if (H5Tget_class(type) != H5T_FLOAT) return std::nullopt;
  if (bytes == 8) return DType::f64;
  if (bytes == 4) return DType::f32;
  return bytes == 2 && is_half(type) ? std::optional(DType::f16) : std::nullopt;
}

}  // namespace

Hdf5Rows::Body::Body(const std::string& file, const std::string& dataset_name, h5::Dataset open,
                     std::int64_t file_bytes)
    : path(file), name(dataset_name), dataset(std::move(open)) {
  take_type();
  take_shape();
  check_layout(file_bytes);
}

void Hdf5Rows::Body::refuse(const std::string& why) const {
  throw FileError(path, name, fmt::format("[hdf5] {}:{} {}", path, name, why));
}

void Hdf5Rows::Body::take_type() {
  const h5::Type type(H5Dget_type(dataset.get()));
  const auto found = element_type(type.get());
  if (!found) refuse("is not of integers or IEEE floats of 16, 32 or 64 bits: convert it");
  dtype = *found;
  memory_type = dtype == DType::f16 ? h5::half_type() : h5::Type(H5Tcopy(h5::storage_type(dtype)));
}

void Hdf5Rows::Body::take_shape() {
  const h5::Space space(H5Dget_space(dataset.get()));
  shape = h5::shape_of(space.get(), path, name);
  if (shape.empty()) refuse("is a single value: rows are along its first axis");
  row_bytes = byte_size(dtype, numel(Shape(shape.begin() + 1, shape.end())));
  if (row_bytes > kLargestPiece) refuse(fmt::format("has rows of {} bytes: at most 1 GiB", row_bytes));
}

void Hdf5Rows::Body::check_layout(std::int64_t file_bytes) {
  const h5::Properties creation(H5Dget_create_plist(dataset.get()));
  const auto layout = H5Pget_layout(creation.get());
  if (layout == H5D_CHUNKED) return check_chunks(creation.get());
  if (layout == H5D_COMPACT) return;
  if (layout != H5D_CONTIGUOUS || H5Pget_external_count(creation.get()) != 0)
    refuse("keeps its values in other files: copy it with h5repack");
  const hsize_t stored = H5Dget_storage_size(dataset.get());
  if (stored > static_cast<hsize_t>(file_bytes))
    refuse(fmt::format("claims {} bytes, the file has {}: it is truncated", stored, file_bytes));
}

void Hdf5Rows::Body::check_chunks(hid_t creation) {
  check_filters(creation);
  std::array<hsize_t, H5S_MAX_RANK> sizes{};
  const int rank = H5Pget_chunk(creation, H5S_MAX_RANK, sizes.data());
  if (rank != static_cast<int>(shape.size())) refuse("has chunks of another rank: it is damaged");
  std::int64_t bytes = byte_size(dtype, 1);
  for (int axis = 0; axis < rank; ++axis) {
    const auto size =
        static_cast<std::int64_t>(std::min<hsize_t>(sizes[static_cast<std::size_t>(axis)], hsize_t{1} << 31));
    if (size == 0 || size > kLargestPiece / bytes)
      refuse("has chunks of more than 1 GiB: rewrite it with smaller ones");
    bytes *= size;
  }
  chunk_rows = static_cast<std::int64_t>(sizes[0]);
}

void Hdf5Rows::Body::check_filters(hid_t creation) const {
  for (int i = 0; i < H5Pget_nfilters(creation); ++i) {
    unsigned flags = 0, configuration = 0;
    std::size_t values = 0;
    std::array<char, 64> label{};
    const auto filter = H5Pget_filter2(creation, static_cast<unsigned>(i), &flags, &values, nullptr,
                                       label.size() - 1, label.data(), &configuration);
    if (filter < 0 || H5Zfilter_avail(filter) <= 0)
      refuse(fmt::format("is compressed with filter {} ({}), which this HDF5 has not: repack it with gzip",
                         static_cast<int>(filter), label.data()));
  }
}

Hdf5Rows::Hdf5Rows(std::unique_ptr<Body> body) : body_(std::move(body)) {}
Hdf5Rows::Hdf5Rows(Hdf5Rows&&) noexcept = default;
Hdf5Rows& Hdf5Rows::operator=(Hdf5Rows&&) noexcept = default;
Hdf5Rows::~Hdf5Rows() = default;

const Shape& Hdf5Rows::shape() const noexcept { return body_->shape; }
DType Hdf5Rows::dtype() const noexcept { return body_->dtype; }
std::int64_t Hdf5Rows::row_bytes() const noexcept { return body_->row_bytes; }
std::int64_t Hdf5Rows::chunk_rows() const noexcept { return body_->chunk_rows; }

void Hdf5Rows::read(std::int64_t begin, std::int64_t end, void* out) const {
  FQ_CHECK(0 <= begin && begin <= end && end <= shape()[0], "hdf5", "rows {} to {} are not within {}", begin,
           end, to_string(shape()));
  if (begin == end || row_bytes() == 0) return;
  const h5::Lock lock;
  std::vector<hsize_t> start(shape().size(), 0), count(shape().begin(), shape().end());
  start[0] = static_cast<hsize_t>(begin);
  count[0] = static_cast<hsize_t>(end - begin);
  const h5::Space file(H5Dget_space(body_->dataset.get()));
  const h5::Space memory(H5Screate_simple(static_cast<int>(count.size()), count.data(), nullptr));
  FQ_CALL(H5Sselect_hyperslab(file.get(), H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr),
          "hdf5");
  const auto status =
      H5Dread(body_->dataset.get(), body_->memory_type.get(), memory.get(), file.get(), H5P_DEFAULT, out);
  h5::check(status, body_->path, body_->name, fmt::format("rows {} to {} cannot be read", begin, end));
}

Tensor Hdf5Rows::read_all() const {
  const std::int64_t elements = numel(shape());
  const std::int64_t bytes =
      elements > (std::int64_t{1} << 56) ? std::int64_t{1} << 62 : byte_size(dtype(), elements);
  std::int64_t stored = 0;
  {
    const h5::Lock lock;
    stored = static_cast<std::int64_t>(H5Dget_storage_size(body_->dataset.get()));
  }
  if (bytes > kAlwaysRead && bytes / kLargestCompression > stored)
    body_->refuse(fmt::format("claims {} bytes, {} are stored of it: write it out", bytes, stored));
  Tensor all = Tensor::empty(shape(), dtype());
  read(0, shape()[0], all.mutable_raw());
  return all;
}

}  // namespace fq::detail
