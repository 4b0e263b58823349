#include "fakequant/train/loop/detail/teacher.h"

#include <cstring>
#include <numeric>
#include <vector>

#include "fakequant/core/profile.h"
#include "fakequant/core/variable.h"
#include "fakequant/layers/modules/module.h"

namespace fq::detail {
namespace {

constexpr std::int64_t kMostKept = std::int64_t{256} << 20;  // bytes

std::vector<std::int64_t> rows_from(std::int64_t first, std::int64_t end) {
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
    : model_(std::move(model)), training_(training), device_(device) {
  model_->to(device);
  model_->eval();
}

Tensor Teacher::run(const Tensor& x) const {
  const ProfileScope profile("teacher");
  const NoGrad no_grad;
  return (*model_)(Variable(x.to(device_))).tensor().to(Layout::row_major);
}

bool Teacher::keeps(const Tensor& some) const {
  return some.nbytes() / some.dim(0) <= kMostKept / training_.data().size();
}

void Teacher::prepare(const std::atomic<bool>* stop) {
  if (prepared_ || training_.options().augment.any()) return;
  const Dataset& data = training_.data();
  const std::int64_t size = data.size(), batch = training_.options().batch_size;
  Tensor all;
  for (std::int64_t first = 0; first < size; first += batch) {
    if (stop != nullptr && *stop) return;
    const std::int64_t end = std::min(first + batch, size);
    const Tensor some = run(data.read(rows_from(first, end)).x).to(Device::cpu());
    if (!all.defined() && !keeps(some)) break;
    if (!all.defined()) all = Tensor::empty(with_rows(some.shape(), size), some.dtype());
    copy_rows(some, 0, all, first, end - first);
  }
  all_ = all;
  prepared_ = true;
}

Tensor Teacher::outputs(const Batch& batch) {
  if (!all_.defined() || batch.rows.empty()) return run(batch.x);
  Tensor out = Tensor::empty(with_rows(all_.shape(), batch.size()), all_.dtype());
  for (std::size_t i = 0; i < batch.rows.size(); ++i)
    copy_rows(all_, batch.rows[i], out, static_cast<std::int64_t>(i), 1);
  return out.to(device_);
}

}  // namespace fq::detail
