#include "fakequant/train/detail/prediction_table.h"

#include <algorithm>
#include <cmath>

#include "fakequant/core/detail/check.h"

namespace fq::detail {
namespace {

std::vector<double> doubles(const Tensor& tensor) {
  return tensor.to(Device::cpu()).to(Layout::row_major).to(DType::f64).to_vector<double>();
}

}  // namespace

PredictionTable::PredictionTable(const Tensor& outputs, const Tensor& labels) {
  FQ_CHECK(outputs.rank() >= 1 && labels.defined(), "metric", "the outputs are {}, the labels {}",
           outputs.describe(), labels.describe());
  // Outputs are [N, C, inner..] in row-major order. A row of the table is one position of a sample; [N] is
  // one column.
  const Shape& shape = outputs.shape();
  columns_ = shape.size() < 2 ? 1 : shape[1];
  inner_ = shape.size() < 2 ? 1 : numel(Shape(shape.begin() + 2, shape.end()));
  rows_ = shape[0] * inner_;
  // Labels of classes lack the axis of the outputs' classes.
  Shape of_classes = shape;
  if (shape.size() >= 2) of_classes.erase(of_classes.begin() + 1);
  const bool classes = labels.dtype() == DType::i64 && columns_ > 1 && labels.shape() == of_classes;
  FQ_CHECK(classes || labels.shape() == shape || (columns_ == 1 && labels.shape() == of_classes), "metric",
           "the outputs are {}, the labels {}: use classes [N, ..], or labels with the shape of the outputs",
           outputs.describe(), labels.describe());
  outputs_ = doubles(outputs);
  if (!classes) {
    targets_ = doubles(labels);
    return;
  }
  labels_ = labels.to(Device::cpu()).to_vector<std::int64_t>();
  for (auto& label : labels_)
    // Such labels are padding or ignored (train/metrics.h): metrics skip them.
    if (label < 0 || label >= columns_) label = -1;
}

double PredictionTable::target(std::int64_t row, std::int64_t column) const {
  return one_of_many() ? (label(row) == column ? 1 : 0) : targets_[place(row, column)];
}

std::int64_t PredictionTable::answer(std::int64_t row) const {
  std::int64_t best = 0;
  for (std::int64_t c = 0; c < columns_; ++c) {
    if (std::isnan(output(row, c))) return -1;
    if (output(row, c) > output(row, best)) best = c;
  }
  return best;
}

std::int64_t PredictionTable::rank(std::int64_t row, std::int64_t column) const {
  const double own = output(row, column);
  if (std::isnan(own)) return columns_;
  std::int64_t before = 0;
  for (std::int64_t c = 0; c < columns_; ++c)
    // Equal outputs are in the order of the columns, as in `answer`.
    before += output(row, c) > own || (output(row, c) == own && c < column) ? 1 : 0;
  return before;
}

std::vector<double> PredictionTable::scores(std::int64_t row) const {
  std::vector<double> out(static_cast<std::size_t>(columns_));
  for (std::size_t c = 0; c < out.size(); ++c) out[c] = output(row, static_cast<std::int64_t>(c));
  if (!one_of_many()) return out;
  // Softmax relative to the largest output, which cannot overflow.
  const double largest = *std::ranges::max_element(out);
  double sum = 0;
  for (double& value : out) sum += value = std::exp(value - largest);
  for (double& value : out) value /= sum;
  return out;
}

}  // namespace fq::detail
