#include "fakequant/train/loop/detail/teacher.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "fakequant/core/profile.h"
#include "fakequant/core/variable.h"
#include "fakequant/layers/modules/module.h"

namespace fq::detail {
namespace {

constexpr std::int64_t kMostKept = std::int64_t{256} << 20;  // most bytes to cache

std::vector<std::int64_t> row_range(std::int64_t first, std::int64_t end) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(end - first));
  std::iota(rows.begin(), rows.end(), first);
  return rows;
}

void copy_rows(const Tensor& from, std::int64_t from_row, Tensor& to, std::int64_t to_row,
               std::int64_t count) {
  const auto row = static_cast<std::size_t>(from.nbytes() / from.dim(0));
  std::memcpy(static_cast<std::byte*>(to.mutable_raw()) + static_cast<std::size_t>(to_row) * row,
              static_cast<const std::byte*>(from.raw()) + static_cast<std::size_t>(from_row) * row,
              static_cast<std::size_t>(count) * row);
}

Shape with_rows(Shape shape, std::int64_t rows) {
  shape[0] = rows;
  return shape;
}

}  // namespace

Teacher::Teacher(std::shared_ptr<Module> model, const DataLoader& training, Device device)
    : model_(std::move(model)),
      training_(training),
      device_(device),
      rows_(training.options().batch_size),
      // Augmented samples differ in every epoch.
      keeps_(!training.options().augment.any()),
      has_(static_cast<std::size_t>((training.data().size() + rows_ - 1) / rows_), false) {
  model_->to(device);
  model_->eval();
}

Tensor Teacher::run(const Tensor& x) const {
  const ProfileScope profile("teacher");
  const NoGrad no_grad;
  return (*model_)(Variable(x.to(device_))).tensor().to(Layout::row_major);
}

// Divides, because the product of row bytes and samples could overflow.
bool Teacher::keeps(const Tensor& some) const {
  return some.nbytes() / some.dim(0) <= kMostKept / training_.data().size();
}

bool Teacher::fill(std::int64_t part) {
  if (has_[static_cast<std::size_t>(part)]) return true;
  // Parts are fixed rows of the data set, not batches: a shuffled or resumed run computes the same parts.
  const std::int64_t first = part * rows_, end = std::min(first + rows_, training_.data().size());
  const Tensor some = run(training_.data().read(row_range(first, end)).x).to(Device::cpu());
  // The first part shows the size of an output.
  if (!all_.defined() && !keeps(some)) return false;
  if (!all_.defined()) all_ = Tensor::empty(with_rows(some.shape(), training_.data().size()), some.dtype());
  copy_rows(some, 0, all_, first, end - first);
  has_[static_cast<std::size_t>(part)] = true;
  return true;
}

Tensor Teacher::outputs(const Batch& batch) {
  // Once outputs are too large, the cache is not tried again.
  keeps_ = keeps_ && std::ranges::all_of(batch.rows, [this](auto row) { return fill(row / rows_); });
  if (!keeps_ || batch.rows.empty()) return run(batch.x);
  Tensor out = Tensor::empty(with_rows(all_.shape(), batch.size()), all_.dtype());
  for (std::size_t i = 0; i < batch.rows.size(); ++i)
    copy_rows(all_, batch.rows[i], out, static_cast<std::int64_t>(i), 1);
  return out.to(device_);
}

}  // namespace fq::detail
