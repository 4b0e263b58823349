#include "fakequant/train/data/reader/label_values.h"

#include <algorithm>
#include <cmath>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/convert.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/detail/utf8.h"
#include "fakequant/train/data/detail/class_names.h"
#include "fakequant/train/data/reader/label_collector.h"

namespace fq::detail {
namespace {

[[noreturn]] void refuse(const std::string& place, const std::string& why) {
  throw FileError(place, "", fmt::format("[dataset] {} {}", place, why));
}

double value_at(const Tensor& values, std::int64_t i) {
  return visit_dtype(values.dtype(), "dataset", [&]<class T>(T) {
    if constexpr (std::is_arithmetic_v<T>)
      return static_cast<double>(values.data<T>()[i]);
    else
      return static_cast<double>(static_cast<float>(values.data<T>()[i]));
  });
}

void check_classes(const Tensor& values, const std::string& place) {
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    const double value = value_at(values, i);
    if (value != std::floor(value) || value < 0 || value >= double(kMostClasses))
      refuse(place, fmt::format("has the label {} in row {}: classes are whole numbers from 0 on{}", value,
                                i / (values.numel() / values.dim(0)),
                                is_floating(values.dtype()) ? "; --task real keeps numbers" : ""));
  }
}

Tensor class_values(const Tensor& values, const std::string& place) {
  const Shape& shape = values.shape();
  if (shape.size() > 2 || (shape.size() == 2 && shape[1] != 1))
    refuse(
        place,
        fmt::format("has the shape {}: classes are [N]. Of rows with a 1 for the class save "
                    "y.argmax(1); where several labels apply, give --task several, for a class of each pixel "
                    "--task dense",
                    to_string(shape)));
  check_classes(values, place);
  return values.to(DType::i64).reshape({shape[0]});
}

Tensor several_values(const Tensor& values, const std::string& place) {
  if (values.rank() != 2)
    refuse(place,
           fmt::format("has the shape {}: several labels are [N, classes]", to_string(values.shape())));
  for (std::int64_t i = 0; i < values.numel(); ++i)
    if (const double value = value_at(values, i); value != 0 && value != 1)
      refuse(place, fmt::format("has {} in row {}: several labels are 0 and 1", value, i / values.dim(1)));
  return values.to(DType::u8);
}

Tensor real_values(const Tensor& values, const std::string& place) {
  if (values.rank() > 2)
    refuse(place, fmt::format("has the shape {}: real labels are [N] or [N, K]", to_string(values.shape())));
  for (std::int64_t i = 0; i < values.numel(); ++i)
    if (!std::isfinite(value_at(values, i)))
      refuse(place, fmt::format("has a NaN or infinity in row {}", i / (values.numel() / values.dim(0))));
  return values.to(DType::f32);
}

}  // namespace

const std::vector<std::string>& task_names() {
  static const std::vector<std::string> names{"none", "classes", "several", "real", "dense"};
  return names;
}

Task task_of(const std::string& name) {
  return static_cast<Task>(std::ranges::find(task_names(), name) - task_names().begin());
}

Labels labels_of(ArrayFile array, Task task, std::int64_t samples, const std::vector<std::string>& names) {
  if (task == Task::none) return {};
  const std::string place = array.place();
  if (array.shape()[0] != samples)
    refuse(place, fmt::format("has {} labels, there are {} samples", array.shape()[0], samples));
  Labels labels{.task = task, .values = {}, .class_names = names};
  if (array.is_text()) {
    if (task != Task::classes || array.row_elements() != 1)
      refuse(place, "is an array of text: it can be the names of classes, [N]");
    LabelCollector classes(names);
    const auto texts = array.texts();
    for (std::size_t i = 0; i < texts.size(); ++i)
      if (!classes.add(texts[i]))
        refuse(place, fmt::format("has the label '{}' in row {}{}", printable(texts[i]), i,
                                  did_you_mean(texts[i], names)));
    return classes.take();
  }
  const Tensor values = array.read_all();
  if (task == Task::classes) labels.values = class_values(values, place);
  if (task == Task::several) labels.values = several_values(values, place);
  if (task == Task::real) labels.values = real_values(values, place);
  if (task == Task::dense) {
    check_classes(values, place);
    labels.values = values.to(DType::i64);
  }
  return labels;
}

}  // namespace fq::detail
