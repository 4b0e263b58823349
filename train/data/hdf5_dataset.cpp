#include "fakequant/train/data/hdf5_dataset.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/convert.h"
#include "fakequant/core/io/detail/hdf5_reader.h"
#include "fakequant/train/data/detail/data_file.h"
#include "fakequant/train/data/detail/rows.h"
#include "fakequant/train/data/detail/sample_layout.h"

namespace fq::detail {
namespace {

/// A cache of the most recently used rows of an HDF5 dataset.
class BlockCache {
 public:
  using Block = std::shared_ptr<const std::vector<std::byte>>;

  /// Blocks follow the chunks of the file: whole chunks if they are small, parts if they are huge. Keeps
  /// `bytes` bytes, and at least two blocks. With `by_rows`, reads and keeps pieces instead of whole blocks:
  /// 4 KiB, a row or a chunk.
  BlockCache(Hdf5Rows rows, std::int64_t bytes, bool by_rows);

  [[nodiscard]] const Hdf5Rows& rows() const noexcept { return rows_; }
  [[nodiscard]] std::int64_t block_rows() const noexcept { return block_rows_; }
  [[nodiscard]] std::int64_t count() const noexcept {
    return (rows_.shape()[0] + block_rows_ - 1) / block_rows_;
  }
  /// Returns the number of blocks that fit the cache.
  [[nodiscard]] std::int64_t capacity() const noexcept { return capacity_; }
  /// Returns the number of rows that are read at once, at most block_rows().
  [[nodiscard]] std::int64_t piece_rows() const noexcept { return piece_rows_; }
  /// Returns piece `index`, the rows [index * piece_rows(), ..). The piece is valid while it is held. Throws
  /// FileError. Thread-safe.
  [[nodiscard]] Block get(std::int64_t index);
  /// Returns the first block. Caches it if it is a piece.
  [[nodiscard]] Block first_block() { return piece_rows_ == block_rows_ ? get(0) : read(0, block_rows_); }

 private:
  using Entry = std::pair<std::int64_t, Block>;

  [[nodiscard]] Block read(std::int64_t begin, std::int64_t end) const;

  Hdf5Rows rows_;
  std::int64_t block_rows_ = 1, piece_rows_ = 1;
  std::int64_t capacity_ = 2, pieces_ = 2;  // blocks and pieces in the cache
  std::mutex mutex_;
  std::list<Entry> latest_;  // most recently used first
  std::unordered_map<std::int64_t, std::list<Entry>::iterator> index_;
};

// Blocks have 256 KiB where chunks allow it, and at most 32 MiB or a quarter of the cache.
constexpr std::int64_t kSmallBlock = std::int64_t{256} << 10;
constexpr std::int64_t kPiece = 4096;  // bytes of a disk read
constexpr std::int64_t kLargeBlock = std::int64_t{32} << 20;

std::int64_t choose_block_rows(const Hdf5Rows& rows, std::int64_t cache_bytes) {
  const std::int64_t row = std::max<std::int64_t>(rows.row_bytes(), 1);
  const std::int64_t most = std::max<std::int64_t>(std::min(kLargeBlock, cache_bytes / 4) / row, 1);
  const std::int64_t chunk = rows.chunk_rows();
  // A chunk above the limit is read in parts, which bounds the memory.
  if (chunk >= most) return most;
  // A block is a whole number of chunks, so that no chunk is decompressed for two blocks.
  const std::int64_t wanted = std::clamp<std::int64_t>(kSmallBlock / row, 1, most);
  return std::max<std::int64_t>(wanted / chunk, 1) * chunk;
}

std::int64_t choose_piece_rows(const Hdf5Rows& rows, std::int64_t block_rows) {
  const std::int64_t wanted =
      std::max(kPiece / std::max<std::int64_t>(rows.row_bytes(), 1), rows.chunk_rows());
  return wanted >= block_rows ? block_rows : wanted / rows.chunk_rows() * rows.chunk_rows();
}

/// Returns how many runs of `run` rows fit the cache.
std::int64_t cached_runs(const Hdf5Rows& rows, std::int64_t run, std::int64_t bytes) {
  const std::int64_t all = (rows.shape()[0] + run - 1) / run;
  return std::clamp<std::int64_t>(bytes / std::max<std::int64_t>(run * rows.row_bytes(), 1), 2,
                                  std::max<std::int64_t>(all, 2));
}

BlockCache::BlockCache(Hdf5Rows rows, std::int64_t bytes, bool by_rows)
    : rows_(std::move(rows)),
      block_rows_(choose_block_rows(rows_, bytes)),
      piece_rows_(by_rows ? choose_piece_rows(rows_, block_rows_) : block_rows_),
      capacity_(cached_runs(rows_, block_rows_, bytes)),
      pieces_(cached_runs(rows_, piece_rows_, bytes)) {}

BlockCache::Block BlockCache::get(std::int64_t index) {
  // The lock is held while reading, so that threads that want the same piece read it once.
  const std::lock_guard lock(mutex_);
  if (const auto found = index_.find(index); found != index_.end()) {
    // Least recently used pieces are at the end of the list.
    latest_.splice(latest_.begin(), latest_, found->second);
    return found->second->second;
  }
  // Evicts before reading, so that the cache never exceeds its bytes.
  while (static_cast<std::int64_t>(latest_.size()) >= pieces_) {
    index_.erase(latest_.back().first);
    latest_.pop_back();
  }
  latest_.emplace_front(index, read(index * piece_rows_, (index + 1) * piece_rows_));
  index_[index] = latest_.begin();
  return latest_.front().second;
}

BlockCache::Block BlockCache::read(std::int64_t begin, std::int64_t end) const {
  end = std::min(end, rows_.shape()[0]);
  auto bytes =
      std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>((end - begin) * rows_.row_bytes()));
  rows_.read(begin, end, bytes->data());
  return bytes;
}

}  // namespace
}  // namespace fq::detail

namespace fq {
namespace {

using detail::Normalisation;

float as_float(float value) { return value; }
float as_float(double value) { return static_cast<float>(value); }
float as_float(float16 value) { return static_cast<float>(value); }
float as_float(bfloat16 value) { return static_cast<float>(value); }
float as_float(std::integral auto value) { return static_cast<float>(value); }

/// Decodes one row of [C, inner] elements. Returns false if a value is not finite.
template <class T>
bool decode(const T* from, std::int64_t inner, const Normalisation& how, float* to) {
  bool finite = true;
  for (std::size_t channel = 0; channel < how.mean.size(); ++channel)
    for (std::int64_t i = 0; i < inner; ++i, ++from, ++to) {
      *to = how.apply(as_float(*from), channel);
      // Without a branch, so that the loop is vectorized; NaN compares false.
      finite &= std::abs(*to) <= std::numeric_limits<float>::max();
    }
  return finite;
}

DType label_dtype(const Tensor& y) { return is_floating(y.dtype()) ? DType::f32 : DType::i64; }

}  // namespace

struct Hdf5Dataset::Body {
  std::string path, x_name;
  std::unique_ptr<detail::BlockCache> x;
  Tensor y;
  Shape sample_shape;
  std::int64_t classes = 0, stated = 0;
  std::vector<std::string> class_names;
  bool ids = false;
  detail::Normalisation how;
  SampleNotes notes;

  Body(std::string file, const Hdf5DatasetOptions& options) : path(std::move(file)) {
    const detail::DataFile parts(path, options);
    x_name = parts.name("x");
    auto rows = parts.open_x();
    sample_shape.assign(rows.shape().begin() + 1, rows.shape().end());
    ids = detail::is_of_ids(rows.dtype());
    parts.check_sample(sample_shape);
    if (!ids) how = parts.normalisation(sample_shape[0]);
    notes = parts.notes();
    // Names of columns belong to another shape if their number differs.
    if (std::ssize(notes.columns) != numel(sample_shape)) notes.columns.clear();
    auto of_file = parts.classes();
    class_names = std::move(of_file.names);
    stated = of_file.count;
    if (options.labels) y = parts.read_y(rows.shape()[0]);
    if (y.defined() && parts.label_kind()->classes()) classes = parts.check_labels(y, stated);
    x = std::make_unique<detail::BlockCache>(std::move(rows), options.cache_bytes, options.by_rows);
    if (!ids && !how.stated) parts.doubt_range(*x->first_block(), x->rows().dtype());
  }

  [[nodiscard]] std::int64_t size() const { return x->rows().shape()[0]; }

  void read_row(std::int64_t row, const std::byte* from, Tensor& out, std::int64_t at) const {
    const std::int64_t count = numel(sample_shape);
    detail::visit_dtype(x->rows().dtype(), "dataset", [&]<class T>(T) {
      const auto* values = reinterpret_cast<const T*>(from);
      // Token ids are copied as i64, without scale, mean and deviation.
      if constexpr (std::is_integral_v<T>)
        if (ids)
          return static_cast<void>(std::copy_n(values, count, out.mutable_data<std::int64_t>() + at * count));
      if (!decode(values, count / sample_shape[0], how, out.mutable_data<float>() + at * count))
        throw FileError(path, x_name,
                        fmt::format("[dataset] {}:{} has a NaN or infinity in row {}", path, x_name, row));
    });
  }
};

Hdf5Dataset::Hdf5Dataset(std::string path, Hdf5DatasetOptions options)
    : body_(std::make_unique<Body>(std::move(path), options)) {}
Hdf5Dataset::~Hdf5Dataset() = default;

std::int64_t Hdf5Dataset::size() const noexcept { return body_->size(); }
const Shape& Hdf5Dataset::sample_shape() const noexcept { return body_->sample_shape; }
std::int64_t Hdf5Dataset::classes() const noexcept { return body_->classes; }
const std::vector<std::string>& Hdf5Dataset::class_names() const noexcept { return body_->class_names; }
const SampleNotes& Hdf5Dataset::sample_notes() const noexcept { return body_->notes; }
bool Hdf5Dataset::token_ids() const noexcept { return body_->ids; }
Tensor Hdf5Dataset::labels() const { return body_->y; }
std::int64_t Hdf5Dataset::stated_classes() const noexcept { return body_->stated; }

std::vector<float> Hdf5Dataset::background() const {
  if (token_ids()) return Dataset::background();
  std::vector<float> values;
  for (std::size_t channel = 0; channel < body_->how.mean.size(); ++channel)
    values.push_back(body_->how.apply(0, channel));
  return values;
}

std::vector<float> Hdf5Dataset::white() const {
  if (token_ids()) return Dataset::white();
  // With scale = 1 / n, the brightest pixel is n, for example 255 or 65535. Bytes with any other scale end at
  // 255.
  const float steps = 1 / body_->how.scale;
  const bool fraction = steps > 1.5f && std::abs(steps - std::nearbyint(steps)) < 1e-3f * steps;
  const float stored = body_->x->rows().dtype() == DType::u8 && !fraction ? 255 : steps;
  std::vector<float> values;
  for (std::size_t channel = 0; channel < body_->how.mean.size(); ++channel)
    values.push_back(body_->how.apply(stored, channel));
  return values;
}

Batch Hdf5Dataset::read(std::span<const std::int64_t> rows) const {
  for (const auto row : rows)
    FQ_CHECK(0 <= row && row < size(), "dataset", "sample {} is out of range: there are {}", row, size());
  const auto count = static_cast<std::int64_t>(rows.size());
  Shape shape{count};
  shape.insert(shape.end(), sample_shape().begin(), sample_shape().end());
  Batch batch{Tensor::empty(shape, token_ids() ? DType::i64 : DType::f32), {}};
  if (body_->y.defined()) batch.y = detail::select_rows(body_->y, rows).to(label_dtype(body_->y));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = rows[static_cast<std::size_t>(i)];
    const std::int64_t in_piece = body_->x->piece_rows();
    // Shared ownership: the bytes stay alive if another thread evicts them from the cache.
    const auto piece = body_->x->get(row / in_piece);
    body_->read_row(row, piece->data() + row % in_piece * body_->x->rows().row_bytes(), batch.x, i);
  }
  return batch;
}

std::vector<std::int64_t> Hdf5Dataset::block_starts() const {
  std::vector<std::int64_t> starts;
  for (std::int64_t i = 0; i < body_->x->count(); ++i) starts.push_back(i * body_->x->block_rows());
  return starts;
}

std::int64_t Hdf5Dataset::blocks_at_once() const noexcept {
  // A window of shuffled blocks takes half of the cache, so that a batch across two windows finds the blocks
  // of both.
  const std::int64_t cached_blocks = body_->x->capacity();
  return cached_blocks >= body_->x->count() ? cached_blocks : std::max<std::int64_t>(cached_blocks / 2, 1);
}

}  // namespace fq
