#include "fakequant/train/ctc.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/threads.h"
#include "fakequant/core/tape.h"
#include "fakequant/train/detail/ctc_sample.h"

namespace fq {
namespace {

using Row = std::vector<std::int64_t>;

constexpr std::string_view kCtc = "ctc";

std::vector<double> doubles(const Tensor& tensor) {
  return tensor.to(Device::cpu()).to(Layout::row_major).to(DType::f64).to_vector<double>();
}

/// Places of each sample that count.
Row lengths_of(const Shape& outputs, const Tensor& given) {
  if (!given.defined()) return Row(static_cast<std::size_t>(outputs[0]), outputs[2]);
  FQ_CHECK(given.dtype() == DType::i64 && given.shape() == Shape{outputs[0]}, kCtc,
           "the lengths are {}: give i64 [{}]", given.describe(), outputs[0]);
  Row out = given.to(Device::cpu()).to_vector<std::int64_t>();
  for (const auto length : out)
    FQ_CHECK(length >= 0 && length <= outputs[2], kCtc, "a length is {}: give 0 to {}", length, outputs[2]);
  return out;
}

struct Found {
  double loss = 0;
  std::vector<double> gradient;  ///< of the outputs, in their order
};

/// `gradient`: whether it is asked for.
Found compute(const Tensor& outputs, const std::vector<Row>& labels, const Row& lengths,
              const losses::CtcOptions& options, bool gradient) {
  const Shape& shape = outputs.shape();
  const std::vector<double> values = doubles(outputs);
  const auto size = static_cast<std::size_t>(shape[1] * shape[2]);
  std::vector<double> each(labels.size());
  Found found{0, std::vector<double>(gradient ? values.size() : 0)};
#pragma omp parallel for schedule(static) num_threads(detail::threads())
  for (std::size_t n = 0; n < labels.size(); ++n) {
    const detail::CtcSample sample{values.data() + n * size, shape[1], shape[2], lengths[n]};
    const double weight = 1 / static_cast<double>(labels.size() * std::max<std::size_t>(1, labels[n].size()));
    double loss = detail::ctc_loss(sample, labels[n], options.blank);
    if (options.zero_infinity && std::isinf(loss))
      loss = 0;
    else if (gradient)
      (void)detail::ctc_loss(sample, labels[n], options.blank, weight, found.gradient.data() + n * size);
    each[n] = loss * weight;
  }
  found.loss = std::accumulate(each.begin(), each.end(), 0.0);
  return found;
}

std::int64_t largest(const std::vector<double>& values, std::size_t begin, std::int64_t classes,
                     std::int64_t stride) {
  std::int64_t best = 0;
  const auto at = [&](std::int64_t c) { return values[begin + static_cast<std::size_t>(c * stride)]; };
  for (std::int64_t c = 1; c < classes; ++c)
    if (at(c) > at(best)) best = c;
  return best;
}

}  // namespace

Variable losses::ctc(const Variable& outputs, const Tensor& labels, const CtcOptions& options) {
  FQ_CHECK(outputs.defined() && outputs.rank() == 3 && outputs.dim(1) > 1, kCtc,
           "the outputs are {}: give [N, C, L], two classes or more at each of L places",
           outputs.defined() ? to_string(outputs.shape()) : "undefined");
  const Variable y = outputs.as_float();
  const Tensor values = y.tensor();
  FQ_CHECK(options.blank >= 0 && options.blank < values.dim(1), kCtc, "blank is {} of {} classes",
           options.blank, values.dim(1));
  const auto rows = label_rows(labels, values.dim(1), options.blank, options.padding);
  FQ_CHECK(static_cast<std::int64_t>(rows.size()) == values.dim(0), kCtc, "the outputs are {}, the labels {}",
           values.describe(), labels.describe());
  const bool gradient = detail::needs_grad({y});
  Found found = compute(values, rows, lengths_of(values.shape(), options.lengths), options, gradient);
  const auto backward = [shape = values.shape(), dtype = values.dtype(), device = values.device(),
                         slopes = std::move(found.gradient)](const Tensor& dy) {
    std::vector<double> dx = slopes;
    const double factor = dy.to(Device::cpu()).to(DType::f64).to_vector<double>().front();
    for (double& value : dx) value *= factor;
    return std::vector<Tensor>{Tensor::from(dx, shape).to(dtype).to(device)};
  };
  const Tensor loss = Tensor::full({}, found.loss, values.dtype(), values.device());
  return detail::record(kCtc, loss, {y}, backward);
}

std::vector<Row> label_rows(const Tensor& labels, std::int64_t classes, std::int64_t blank,
                            std::optional<std::int64_t> padding) {
  FQ_CHECK(labels.defined() && !is_floating(labels.dtype()) && (labels.rank() == 1 || labels.rank() == 2),
           kCtc, "the labels are {}: give integers [N, S]", labels.describe());
  const auto all = labels.to(Device::cpu()).to(DType::i64).to_vector<std::int64_t>();
  const std::size_t width = labels.rank() == 2 ? static_cast<std::size_t>(labels.dim(1)) : 1;
  std::vector<Row> rows(static_cast<std::size_t>(labels.dim(0)));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::int64_t label = all[i];
    if (label < 0 || label == blank || label == padding) continue;
    Row& row = rows[i / width];
    FQ_CHECK(label < classes, kCtc, "label {} of sample {} is not 0 to {}", label, i / width, classes - 1);
    FQ_CHECK(row.size() == i % width, kCtc,
             "sample {} has the label {} behind the end of its labels: blanks ({}), negative numbers{} fill "
             "the end of a row only",
             i / width, label, blank, padding ? fmt::format(" and {}", *padding) : "");
    row.push_back(label);
  }
  return rows;
}

std::int64_t ctc_places(const Row& labels) {
  std::int64_t places = static_cast<std::int64_t>(labels.size());
  for (std::size_t i = 1; i < labels.size(); ++i) places += labels[i] == labels[i - 1] ? 1 : 0;
  return places;
}

Tensor ctc_decode(const Tensor& outputs, std::int64_t blank) {
  FQ_CHECK(outputs.defined() && outputs.rank() == 3, "ctc_decode", "the outputs are {}: give [N, C, L]",
           outputs.describe());
  const std::int64_t classes = outputs.dim(1), places = outputs.dim(2);
  const std::vector<double> values = doubles(outputs);
  Row read(static_cast<std::size_t>(outputs.dim(0) * places), -1);
  for (std::int64_t n = 0; n < outputs.dim(0); ++n) {
    auto next = read.begin() + n * places;
    std::int64_t before = blank;
    for (std::int64_t t = 0; t < places; ++t) {
      const auto c = largest(values, static_cast<std::size_t>(n * classes * places + t), classes, places);
      if (c != before && c != blank) *next++ = c;
      before = c;
    }
  }
  return Tensor::from(read, {outputs.dim(0), places});
}

std::int64_t edit_distance(const Row& a, const Row& b) {
  Row row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::int64_t diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::int64_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j + 1] + 1, row[j] + 1, replaced});
    }
  }
  return row.back();
}

}  // namespace fq
