#include "fakequant/core/io/detail/hdf5_rows.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"

namespace fq::detail {
namespace {

constexpr std::int64_t kAlwaysRead = std::int64_t{256} << 20;  // whatever the file stores of it
constexpr hsize_t kFilterRoom = 4096;                          // what a filter may add to a small chunk

}  // namespace

void Hdf5Rows::Body::read(std::int64_t begin, std::int64_t end, std::byte* out) const {
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
  grid_->for_each(begin, end, [&](const Shape& origin) {
    const auto elements = read_chunk(origin);
    if (!elements.empty()) grid_->copy(origin, elements.data(), begin, end, out);
  });
}

// HDF5 has one answer to the size of a chunk that is not there and of one that it cannot look up, but reads
// an element of the first.
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
  if (stored > bytes + bytes / 8 + kFilterRoom || stored > static_cast<hsize_t>(file_bytes_))
    refuse(fmt::format("has a chunk of {} bytes stored in {}: it is damaged", bytes, stored));
  StoredChunk chunk{std::vector<std::byte>(stored), 0};
  if (stored == 0) return chunk;
  const auto read =
      H5Dread_chunk(dataset.get(), H5P_DEFAULT, offset.data(), &chunk.skipped, chunk.bytes.data());
  h5::check(read, path, name, fmt::format("has an unreadable chunk at {}", to_string(origin)));
  if (plain_edges_ && grid_->at_edge(origin)) chunk.skipped = ~0u;
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
  if (!small && !body_->is_stored()) body_->refuse_claim(shape()[0], row_bytes());
  Tensor all = Tensor::empty(shape(), dtype());
  read(0, shape()[0], all.mutable_raw());
  return all;
}

}  // namespace fq::detail
