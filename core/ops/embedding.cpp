#include "fakequant/core/ops/embedding.h"

#include <algorithm>
#include <cmath>

#include "fakequant/core/ops/operator.h"

namespace fq::ops {
namespace {

constexpr std::string_view kEmbedding = "embedding";

void check_whole(const Tensor& ids) {
  const auto* values = ids.data<float>();
  for (std::int64_t i = 0; i < ids.numel(); ++i)
    FQ_CHECK(values[i] == std::floor(values[i]), kEmbedding, "id {} of {} is {}: use whole numbers", i,
             ids.numel(), values[i]);
}

/// The ids as i64, row-major, all of them rows of the table.
Tensor checked_ids(const Variable& ids, std::int64_t rows) {
  const auto* tensor = ids.defined() ? std::get_if<Tensor>(&ids.value()) : nullptr;
  FQ_CHECK(
      tensor != nullptr && tensor->defined() &&
          (tensor->dtype() == DType::i64 || tensor->dtype() == DType::i32 || tensor->dtype() == DType::f32),
      kEmbedding, "the ids are {}: give i64, i32 or whole numbers in f32",
      tensor != nullptr ? tensor->describe() : "codes or undefined");
  const Tensor given = tensor->to(Layout::row_major), out = given.to(DType::i64);
  if (!detail::computes(out)) return out;
  if (given.dtype() == DType::f32) check_whole(given);
  const auto* values = out.data<std::int64_t>();
  for (std::int64_t i = 0; i < out.numel(); ++i)
    FQ_CHECK(values[i] >= 0 && values[i] < rows, kEmbedding, "id {} of {} is {}: use 0 to {}", i, out.numel(),
             values[i], rows - 1);
  return out;
}

void gather(const Tensor& ids, const Tensor& weight, Tensor& y) {
  const auto* id = ids.data<std::int64_t>();
  const std::int64_t width = weight.dim(1);
  detail::visit_float(weight.dtype(), kEmbedding, [&]<class T>(T) {
    const T* table = weight.data<T>();
    T* out = y.mutable_data<T>();
#pragma omp parallel for schedule(static) if (y.numel() > 32768)
    for (std::int64_t i = 0; i < ids.numel(); ++i) std::copy_n(table + id[i] * width, width, out + i * width);
  });
}

void scatter(const Tensor& ids, const Tensor& dy, Tensor& dw) {
  const auto* id = ids.data<std::int64_t>();
  const std::int64_t width = dw.dim(1);
  const Tensor same = dy.to(Layout::row_major);
  detail::visit_float(dw.dtype(), kEmbedding, [&]<class T>(T) {
    const T* in = same.data<T>();
    T* table = dw.mutable_data<T>();
    for (std::int64_t i = 0; i < ids.numel(); ++i)
#pragma omp simd
      for (std::int64_t d = 0; d < width; ++d) table[id[i] * width + d] += in[i * width + d];
  });
}

}  // namespace

Variable embedding(const Variable& ids, const Variable& weight) {
  const auto w = detail::floats(weight, kEmbedding);
  FQ_CHECK(w.tensor.rank() == 2, kEmbedding, "the weight is {}: give [V, D]", to_string(w.tensor.shape()));
  const Tensor rows = checked_ids(ids, w.tensor.dim(0));
  Shape shape = rows.shape();
  shape.push_back(w.tensor.dim(1));
  Tensor y = Tensor::empty(shape, w.tensor.dtype(), w.tensor.device());
  if (detail::computes(y)) gather(rows, w.tensor, y);
  const auto backward = [saved = detail::Saved(rows), table = w.tensor.shape()](const Tensor& dy) {
    Tensor dw = Tensor::zeros(table, dy.dtype(), dy.device());
    if (detail::computes(dw)) scatter(saved.get(), dy, dw);
    return std::vector<Tensor>{Tensor(), dw};
  };
  return detail::record(kEmbedding, y, {ids, w.variable}, backward);
}

}  // namespace fq::ops
