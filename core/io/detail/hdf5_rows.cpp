#include "fakequant/core/io/detail/hdf5_rows.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"

namespace fq::detail {

namespace {

/// Advances to the next of the positions low, low + step, .. below high along each axis, the last axis
/// fastest. Returns false after the last position.
bool advance(Shape& place, const Shape& low, const Shape& high, const Shape& step) {
  for (std::size_t axis = place.size(); axis-- > 0;) {
    place[axis] += step[axis];
    if (place[axis] < high[axis]) return true;
    place[axis] = low[axis];
  }
  return false;
}

}  // namespace

ChunkGrid::ChunkGrid(Shape sizes, Shape chunk, std::int64_t element_bytes)
    : sizes_(std::move(sizes)), chunk_(std::move(chunk)), element_bytes_(element_bytes) {}

bool ChunkGrid::is_padded(const Shape& origin) const {
  for (std::size_t axis = 0; axis < sizes_.size(); ++axis)
    if (origin[axis] + chunk_[axis] > sizes_[axis]) return true;
  return false;
}

void ChunkGrid::visit_chunks(std::int64_t begin, std::int64_t end,
                             const std::function<void(const Shape&)>& visit) const {
  Shape low(sizes_.size(), 0), high = sizes_;
  low[0] = begin / chunk_[0] * chunk_[0];
  // Chunks that contain rows begin .. end - 1.
  high[0] = end;
  if (begin >= end || std::ranges::count(sizes_, 0) > 0) return;
  Shape origin = low;
  do {
    visit(origin);
  } while (advance(origin, low, high, chunk_));
}

void ChunkGrid::copy(const Shape& origin, const std::byte* from, std::int64_t begin, std::int64_t end,
                     std::byte* rows) const {
  std::size_t run_axis = sizes_.size() - 1;  // axes after it are contiguous in the chunk and in the rows
  while (run_axis > 1 && chunk_[run_axis] == sizes_[run_axis]) --run_axis;
  Shape low = origin, high = origin;
  for (std::size_t axis = 0; axis < sizes_.size(); ++axis)
    high[axis] = std::min(origin[axis] + chunk_[axis], sizes_[axis]);
  low[0] = std::max(low[0], begin);
  high[0] = std::min(high[0], end);
  std::int64_t run_bytes = element_bytes_;
  for (std::size_t axis = run_axis; axis < sizes_.size(); ++axis) run_bytes *= high[axis] - low[axis];
  Shape step(sizes_.size(), 1), place = low;
  for (std::size_t axis = run_axis; axis < sizes_.size(); ++axis) step[axis] = high[axis] - low[axis];
  do {
    std::int64_t source = 0, target = 0;
    for (std::size_t axis = 0; axis < sizes_.size(); ++axis) {
      // Row-major offsets by Horner's rule: in the chunk, whose edges are padded, and in the rows of the
      // output.
      source = source * chunk_[axis] + place[axis] - origin[axis];
      target = target * sizes_[axis] + place[axis] - (axis == 0 ? begin : 0);
    }
    std::memcpy(rows + target * element_bytes_, from + source * element_bytes_,
                static_cast<std::size_t>(run_bytes));
  } while (advance(place, low, high, step));
}
namespace {

constexpr std::int64_t kAlwaysRead = std::int64_t{256} << 20;  // read regardless of the stored size
constexpr hsize_t kFilterRoom = 4096;                          // bytes that a filter may add to a small chunk

}  // namespace

void Hdf5Rows::Body::read(std::int64_t begin, std::int64_t end, std::byte* out) const {
  // Chunks that were never written have no bytes in the file: their rows keep the fill value.
  if (grid_) fill(out, static_cast<std::size_t>((end - begin) * row_bytes));
  if (filters_ && !filters_->empty())
    read_chunks(begin, end, out);
  else
    read_selected(begin, end, out);
}

void Hdf5Rows::Body::fill(std::byte* out, std::size_t bytes) const {
  std::memset(out, 0, bytes);
  if (std::ranges::all_of(fill_value_, [](std::byte byte) { return byte == std::byte{0}; })) return;
  for (std::size_t at = 0; at < bytes; at += fill_value_.size()) std::ranges::copy(fill_value_, out + at);
}

void Hdf5Rows::Body::read_selected(std::int64_t begin, std::int64_t end, std::byte* out) const {
  const h5::Lock lock;
  std::vector<hsize_t> start(shape.size(), 0), count(shape.begin(), shape.end());
  start[0] = static_cast<hsize_t>(begin);
  count[0] = static_cast<hsize_t>(end - begin);
  const h5::Space file(H5Dget_space(dataset.get()));
  const h5::Space memory(H5Screate_simple(static_cast<int>(count.size()), count.data(), nullptr));
  FQ_CALL(H5Sselect_hyperslab(file.get(), H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr),
          "hdf5");
  const auto status = H5Dread(dataset.get(), memory_type.get(), memory.get(), file.get(), H5P_DEFAULT, out);
  h5::check(status, path, name, fmt::format("rows {} to {} cannot be read", begin, end));
}

void Hdf5Rows::Body::read_chunks(std::int64_t begin, std::int64_t end, std::byte* out) const {
  grid_->visit_chunks(begin, end, [&](const Shape& origin) {
    const auto elements = read_chunk(origin);
    if (!elements.empty()) grid_->copy(origin, elements.data(), begin, end, out);
  });
}

// HDF5 reports the same size for a missing chunk and for a chunk that it cannot find. It can read an element
// only of a missing chunk.
void Hdf5Rows::Body::check_unwritten(const std::vector<hsize_t>& offset) const {
  const h5::Space file(H5Dget_space(dataset.get())), memory(H5Screate(H5S_SCALAR));
  FQ_CALL(H5Sselect_elements(file.get(), H5S_SELECT_SET, 1, offset.data()), "hdf5");
  std::array<std::byte, sizeof(double)> element;
  const auto status =
      H5Dread(dataset.get(), memory_type.get(), memory.get(), file.get(), H5P_DEFAULT, element.data());
  h5::check(status, path, name, fmt::format("has an unreadable chunk at {}", fmt::join(offset, ", ")));
}

Hdf5Rows::Body::StoredChunk Hdf5Rows::Body::stored_chunk(const Shape& origin, std::size_t bytes) const {
  const h5::Lock lock;
  const std::vector<hsize_t> offset(origin.begin(), origin.end());
  hsize_t stored = 0;
  if (H5Dget_chunk_storage_size(dataset.get(), offset.data(), &stored) < 0) check_unwritten(offset);
  // Filters may add a few bytes to incompressible data. More means that the size itself is damaged.
  if (stored > bytes + bytes / 8 + kFilterRoom || stored > static_cast<hsize_t>(file_bytes_))
    refuse(fmt::format("has a chunk of {} bytes stored in {} bytes: it is damaged", bytes, stored));
  StoredChunk chunk{std::vector<std::byte>(stored), 0};
  if (stored == 0) return chunk;
  const auto read =
      H5Dread_chunk(dataset.get(), H5P_DEFAULT, offset.data(), &chunk.skipped, chunk.bytes.data());
  h5::check(read, path, name, fmt::format("has an unreadable chunk at {}", to_string(origin)));
  // With this option HDF5 stores chunks that reach beyond the shape without filters.
  if (plain_edges_ && grid_->is_padded(origin)) chunk.skipped = ~0u;
  return chunk;
}

std::vector<std::byte> Hdf5Rows::Body::read_chunk(const Shape& origin) const {
  const auto elements = static_cast<std::size_t>(grid_->chunk_elements());
  const std::size_t bytes = elements * static_cast<std::size_t>(file_element_bytes_);
  auto [stored, skipped] = stored_chunk(origin, bytes);
  if (stored.empty()) return {};
  try {
    return converted(filters_->decode(std::move(stored), skipped, bytes), elements);
  } catch (const h5::BadChunk& error) {
    refuse(error.what());
  }
}

std::vector<std::byte> Hdf5Rows::Body::converted(std::vector<std::byte> chunk, std::size_t elements) const {
  const h5::Lock lock;
  if (H5Tequal(file_type.get(), memory_type.get()) > 0) return chunk;
  // H5Tconvert works in place, and the memory type may be larger than the type of the file.
  chunk.resize(std::max(chunk.size(), elements * fill_value_.size()));
  const auto status =
      H5Tconvert(file_type.get(), memory_type.get(), elements, chunk.data(), nullptr, H5P_DEFAULT);
  h5::check(status, path, name, "has elements that cannot be converted");
  return chunk;
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
  if (begin < end && row_bytes() > 0) body_->read(begin, end, static_cast<std::byte*>(out));
}

Tensor Hdf5Rows::read_all() const {
  const bool small = row_bytes() == 0 || shape()[0] <= kAlwaysRead / row_bytes();
  // Checked before allocation: a damaged shape must not allocate terabytes.
  if (!small && !body_->is_stored()) body_->refuse_claim(shape()[0], row_bytes());
  Tensor all = Tensor::empty(shape(), dtype());
  read(0, shape()[0], all.mutable_raw());
  return all;
}

namespace {

constexpr std::int64_t kLargestPiece = std::int64_t{1} << 30;  // a row, a chunk
constexpr std::int64_t kMostElements = std::int64_t{1} << 56;  // so that the number of bits fits
constexpr std::int64_t kMostUnwritten = std::int64_t{64} << 30;
constexpr std::int64_t kMostUnwrittenRows = std::int64_t{1} << 25;

bool is_half(hid_t type) {
  std::size_t sign = 0, exponent = 0, exponent_bits = 0, mantissa = 0, mantissa_bits = 0;
  return H5Tget_fields(type, &sign, &exponent, &exponent_bits, &mantissa, &mantissa_bits) >= 0 &&
         sign == 15 && exponent == 10 && exponent_bits == 5 && mantissa == 0 && mantissa_bits == 10 &&
         H5Tget_ebias(type) == 15;
}

std::optional<DType> integer_type(std::size_t bytes, bool is_signed) {
  if (bytes == 1) return is_signed ? DType::i8 : DType::u8;
  // u16 and u32 widen to the next signed type, which holds all of their values.
  if (bytes == 2) return is_signed ? DType::i16 : DType::i32;
  if (bytes == 4) return is_signed ? DType::i32 : DType::i64;
  if (bytes == 8) return DType::i64;
  return std::nullopt;
}

std::optional<DType> element_type(hid_t type) {
  const std::size_t bytes = H5Tget_size(type);
  if (H5Tget_class(type) == H5T_ENUM) {  // h5py stores booleans as an enum
    const h5::Type base(H5Tget_super(type));
    return integer_type(bytes, H5Tget_sign(base.get()) == H5T_SGN_2);
  }
  if (H5Tget_class(type) == H5T_INTEGER) return integer_type(bytes, H5Tget_sign(type) == H5T_SGN_2);
  if (H5Tget_class(type) != H5T_FLOAT) return std::nullopt;
  if (bytes == 8) return DType::f64;
  if (bytes == 4) return DType::f32;
  return bytes == 2 && is_half(type) ? std::optional(DType::f16) : std::nullopt;
}

}  // namespace

Hdf5Rows::Body::Body(const std::string& file, const std::string& dataset_name, h5::Dataset open,
                     std::int64_t file_bytes)
    : path(file), name(dataset_name), dataset(std::move(open)), file_bytes_(file_bytes) {
  const h5::Properties creation(H5Dget_create_plist(dataset.get()));
  h5::check(creation.get(), path, name, "has unreadable properties");
  check_layout(creation.get());
  take_type();
  take_shape();
  if (H5Pget_layout(creation.get()) == H5D_CHUNKED)
    take_chunks(creation.get());
  else
    check_whole(creation.get());
  check_rows();
}

void Hdf5Rows::Body::refuse(const std::string& why) const {
  throw FileError(path, name, fmt::format("[hdf5] {}:{} {}", path, name, why));
}

void Hdf5Rows::Body::refuse_claim(std::int64_t count, std::int64_t bytes) const {
  refuse(fmt::format("claims {} times {} bytes, but {} are stored: write all values", count, bytes,
                     stored_bytes()));
}

bool Hdf5Rows::Body::is_stored() const {
  // More rows than the stored bytes can expand to were never written.
  constexpr std::int64_t kLargestCompression = 1100;  // deflate reaches 1032
  const std::int64_t stored = std::min(stored_bytes(), file_bytes_);
  return row_bytes > 0 && shape[0] / kLargestCompression <= stored / row_bytes;
}

std::int64_t Hdf5Rows::Body::stored_bytes() const {
  const h5::Lock lock;
  return static_cast<std::int64_t>(std::min<hsize_t>(H5Dget_storage_size(dataset.get()), hsize_t{1} << 62));
}

// Called before the shape is read, because for the shape HDF5 opens the files of a virtual dataset.
void Hdf5Rows::Body::check_layout(hid_t creation) const {
  const auto layout = H5Pget_layout(creation);
  const bool own = layout == H5D_CHUNKED || layout == H5D_COMPACT || layout == H5D_CONTIGUOUS;
  if (!own || H5Pget_external_count(creation) != 0)
    refuse("stores its values in other files: copy it with h5repack");
}

void Hdf5Rows::Body::take_type() {
  file_type = h5::Type(H5Dget_type(dataset.get()));
  const auto found = element_type(file_type.get());
  if (!found) refuse("has elements other than integers and IEEE floats of 16, 32 or 64 bits: convert it");
  dtype = *found;
  file_element_bytes_ = static_cast<std::int64_t>(H5Tget_size(file_type.get()));
  memory_type = dtype == DType::f16 ? h5::half_type() : h5::Type(H5Tcopy(h5::storage_type(dtype)));
}

void Hdf5Rows::Body::take_shape() {
  const h5::Space space(H5Dget_space(dataset.get()));
  shape = h5::dataspace_shape(space.get(), path, name);
  if (shape.empty()) refuse("is a single value: rows are along its first axis");
  const std::int64_t elements = numel(Shape(shape.begin() + 1, shape.end()));
  row_bytes = byte_size(dtype, std::min(elements, kMostElements));
  if (row_bytes > kLargestPiece) refuse(fmt::format("has rows of {} bytes: at most 1 GiB", row_bytes));
}

// For contiguous and compact datasets HDF5 reads the size of the shape at any claimed offset, without
// checks.
void Hdf5Rows::Body::check_whole(hid_t creation) const {
  const std::int64_t elements = numel(shape);
  const std::int64_t stored = stored_bytes();
  if (elements > stored / file_element_bytes_) refuse_claim(elements, file_element_bytes_);
  std::int64_t room = file_bytes_;
  if (H5Pget_layout(creation) == H5D_COMPACT) {
    H5O_info_t info{};
    h5::check(H5Oget_info2(dataset.get(), &info, H5O_INFO_HDR), path, name, "is unreadable");
    room = static_cast<std::int64_t>(std::min<hsize_t>(info.hdr.space.mesg, hsize_t{1} << 62));
  } else if (stored > 0) {
    const haddr_t begin = H5Dget_offset(dataset.get());
    room -= static_cast<std::int64_t>(std::min<haddr_t>(begin, static_cast<haddr_t>(file_bytes_)));
  }
  if (stored > room)
    refuse(fmt::format("claims {} bytes, the file has {} for it: it is truncated", stored, room));
}

void Hdf5Rows::Body::take_chunks(hid_t creation) {
  std::array<hsize_t, H5S_MAX_RANK> sizes{};
  const int rank = H5Pget_chunk(creation, H5S_MAX_RANK, sizes.data());
  if (rank != static_cast<int>(shape.size())) refuse("has chunks of another rank: it is damaged");
  // A chunk is in memory in both element types: the larger one counts.
  std::int64_t bytes = std::max(byte_size(dtype, 1), file_element_bytes_);
  Shape chunk;
  for (int axis = 0; axis < rank; ++axis) {
    const auto size =
        static_cast<std::int64_t>(std::min<hsize_t>(sizes[static_cast<std::size_t>(axis)], hsize_t{1} << 31));
    if (size == 0 || size > kLargestPiece / bytes)
      refuse("has chunks of more than 1 GiB: rewrite it with smaller ones");
    bytes *= size;
    chunk.push_back(size);
  }
  chunk_rows = chunk[0];
  unsigned options = 0;
  h5::check(H5Pget_chunk_opts(creation, &options), path, name, "has unreadable chunk options");
  plain_edges_ = (options & H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS) != 0;
  grid_.emplace(shape, std::move(chunk), byte_size(dtype, 1));
  try {
    filters_.emplace(creation);
  } catch (const h5::BadChunk& error) {
    refuse(error.what());
  }
  // Default fill values are 0. Others are read in the memory type, which is what `fill` copies.
  fill_value_.resize(static_cast<std::size_t>(byte_size(dtype, 1)));
  H5D_fill_value_t defined = H5D_FILL_VALUE_UNDEFINED;
  h5::check(H5Pfill_value_defined(creation, &defined), path, name, "has an unreadable fill value");
  if (defined == H5D_FILL_VALUE_USER_DEFINED)
    h5::check(H5Pget_fill_value(creation, memory_type.get(), fill_value_.data()), path, name,
              "has an unreadable fill value");
}

// Chunks that were never written take no room, so a small file may claim any number of rows.
void Hdf5Rows::Body::check_rows() const {
  const std::int64_t most = kMostUnwritten / std::max<std::int64_t>(row_bytes, 1);
  if (shape[0] > std::min(most, kMostUnwrittenRows) && !is_stored()) refuse_claim(shape[0], row_bytes);
}

}  // namespace fq::detail
