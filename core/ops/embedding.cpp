#include "fakequant/core/ops/detail/operator.h"
#include "fakequant/core/ops/linear.h"

namespace fq::ops {
namespace {

constexpr std::string_view kEmbedding = "embedding";

/// The ids as i64, row-major, all of them rows of the table.
Tensor checked_ids(const Variable& ids, const Tensor& table) {
  const auto* tensor = ids.defined() ? std::get_if<Tensor>(&ids.value()) : nullptr;
  FQ_CHECK(
      tensor != nullptr && tensor->defined() &&
          (tensor->dtype() == DType::i64 || tensor->dtype() == DType::i32 || tensor->dtype() == DType::f32),
      kEmbedding, "the ids are {}: give i64, i32 or whole numbers in f32",
      tensor != nullptr ? tensor->describe() : "codes or undefined");
  FQ_CHECK(tensor->device() == table.device(), kEmbedding, "the ids are {}, the weight {}: use one device",
           tensor->describe(), table.describe());
  const Tensor given = tensor->to(Layout::row_major), out = given.to(DType::i64);
  if (given.dtype() == DType::f32)
    detail::run(out.device(), &detail::Kernels::check_whole, given, kEmbedding, "id");
  detail::run(out.device(), &detail::Kernels::check_indices, out, table.dim(0), std::optional<std::int64_t>(),
              kEmbedding, "id");
  return out;
}

}  // namespace

Variable embedding(const Variable& ids, const Variable& weight) {
  const auto w = detail::floats(weight, kEmbedding);
  FQ_CHECK(w.tensor.rank() == 2, kEmbedding, "the weight is {}: give [V, D]", to_string(w.tensor.shape()));
  const Tensor rows = checked_ids(ids, w.tensor);
  Shape shape = rows.shape();
  shape.push_back(w.tensor.dim(1));
  Tensor y = Tensor::empty(shape, w.tensor.dtype(), w.tensor.device());
  detail::run(y.device(), &detail::Kernels::gather_rows, rows, w.tensor, y);
  const auto backward = [saved = detail::Saved(rows), table = w.tensor.shape(),
                         asked = ids.requires_grad()](const Tensor& dy) {
    Tensor dw = Tensor::empty(table, dy.dtype(), dy.device());
    detail::run(dw.device(), &detail::Kernels::sum_rows, saved.get(), dy.to(Layout::row_major), dw);
    // Of row numbers there is no slope: they may be a part of an input that has others.
    return std::vector<Tensor>{asked ? Tensor::zeros(saved.get().shape(), DType::f32, dy.device()) : Tensor(),
                               dw};
  };
  return detail::record(kEmbedding, y, {ids, w.variable}, backward);
}

}  // namespace fq::ops
