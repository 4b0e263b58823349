#include "fakequant/train/loop/detail/finite.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "fakequant/core/detail/convert.h"
#include "fakequant/core/ops/detail/updates.h"

namespace fq::detail {
namespace {

// Integers are always finite. Statistics of calibrators are not values of the run.
bool is_checked(const StateDict::Entry& entry) {
  const DType dtype = entry.second.dtype();
  const bool numbers =
      dtype == DType::f32 || dtype == DType::f64 || dtype == DType::f16 || dtype == DType::bf16;
  return numbers && entry.first.find("/calibrator/") == std::string::npos;
}

// 16-bit floats are compared as f32, which has all of their values.
Tensor as_float(const Tensor& tensor) {
  return tensor.dtype() == DType::f64 ? tensor : tensor.to(DType::f32);
}

std::optional<NotFinite> first_not_finite(const StateDict::Entry& entry) {
  const Tensor values = as_float(entry.second.to(Device::cpu()).to(Layout::row_major));
  return visit_float(values.dtype(), "train", [&]<class T>(T) -> std::optional<NotFinite> {
    const T *begin = values.data<T>(), *end = begin + values.numel();
    const T* bad = std::find_if(begin, end, [](T value) { return !std::isfinite(value); });
    if (bad == end) return std::nullopt;
    return NotFinite{entry.first, bad - begin, static_cast<double>(*bad)};
  });
}

}  // namespace

std::string NotFinite::text() const { return fmt::format("{} has {} at element {}", name, value, index); }

std::optional<NotFinite> find_not_finite(const std::vector<StateDict::Entry>& tensors) {
  // One norm per device is a single reduction. It is finite only if all values are.
  std::map<std::string, std::vector<Tensor>> by_device;
  for (const auto& entry : tensors)
    if (is_checked(entry)) by_device[to_string(entry.second.device())].push_back(as_float(entry.second));
  const bool fine = std::ranges::all_of(
      by_device, [](const auto& group) { return std::isfinite(ops::norm(group.second)); });
  if (fine) return std::nullopt;
  for (const auto& entry : tensors)
    if (is_checked(entry))
      if (auto found = first_not_finite(entry)) return found;
  return std::nullopt;  // the sum of squares overflowed, with finite values
}

std::string not_finite_sample(const Batch& batch) {
  std::vector<StateDict::Entry> parts;
  for (const auto& [name, tensor] : {StateDict::Entry("x", batch.x), StateDict::Entry("y", batch.y)})
    if (tensor.defined() && tensor.numel() > 0) parts.emplace_back(name, tensor);
  const auto found = find_not_finite(parts);
  if (!found) return {};
  const Tensor& tensor = found->name == "x" ? batch.x : batch.y;
  const std::int64_t row = found->index / (tensor.numel() / tensor.dim(0));
  // Augmented batches have no rows of the data: the message counts within the batch.
  const bool known = std::ssize(batch.rows) == tensor.dim(0);
  return fmt::format("{} of sample {} of the {} has {}: leave that sample out, or give it a value",
                     found->name, known ? batch.rows[static_cast<std::size_t>(row)] : row,
                     known ? "data" : "batch", found->value);
}

}  // namespace fq::detail
