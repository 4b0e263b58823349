#pragma once

/// The operators of ONNX and what builds them.

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fakequant/core/ops/operators.h"
#include "fakequant/export/onnx/reader/onnx_schema.h"
#include "fakequant/export/onnx/reader/op_import.h"

namespace fq::detail {

/// One operator, with inputs and attributes in the notation of OnnxSchema.
struct OperatorRow {
  std::string_view domain, name;
  OpBuilder build;  ///< null: the operator is folded, or part of a pattern
  std::string inputs, attributes;
  int first = kFirstOpset, last = kLastOpset;  ///< supported opsets of ONNX
};

struct Operator {
  const OperatorRow& row;
  OnnxSchema schema;
};

/// Rows of the plain functions of the operator table (core/ops/operators.h), and of other ONNX operators.
[[nodiscard]] const std::vector<OperatorRow>& operator_table();
/// The plain function of the operator table that an ONNX operator is. Null if there is none.
[[nodiscard]] const OperatorSchema* plain_row(std::string_view onnx);
/// Null for operators that are not in the table.
[[nodiscard]] const Operator* find_operator(const OnnxNode& node);

}  // namespace fq::detail

namespace fq::detail::onnx_ops {

ImportValue conv(const OpImport& op);
ImportValue conv_transpose(const OpImport& op);
ImportValue gemm(const OpImport& op);
/// A third input is the bias.
ImportValue matmul(const OpImport& op);
ImportValue batch_norm(const OpImport& op);
/// Of a pattern: `axes` as ReduceMean has them, scale and bias may be left out.
ImportValue layer_norm(const OpImport& op);
/// The operator of versions 23 to 25.
ImportValue attention(const OpImport& op);
/// Options of a layer scaled_dot_product_attention for queries of the shape `q`.
nlohmann::ordered_json attention_options(const Shape& q, double scale, bool causal);
/// What a mark of a grid is on, and the grid's place; the value itself and -1 where it is none.
std::pair<ImportValue, int> without_mark(const OpImport& op, const ImportValue& x);
/// The output of an attention layer whose weights were put on a grid.
ImportValue with_weights_on_grid(const OpImport& op, const ImportValue& y, int index);
/// What a product of weights `p` and values `v` is where softmax made the weights of scores of queries and
/// keys: one layer; none where the scores are made otherwise, as of a bias that is trained.
std::optional<ImportValue> attention_of(const OpImport& op, const ImportValue& p, const ImportValue& v);
ImportValue embedding(const OpImport& op);
ImportValue instance_norm(const OpImport& op);
ImportValue group_norm(const OpImport& op);
ImportValue rms_norm(const OpImport& op);
ImportValue local_response_norm(const OpImport& op);

ImportValue max_pool(const OpImport& op);
ImportValue average_pool(const OpImport& op);
ImportValue global_average_pool(const OpImport& op);
ImportValue global_max_pool(const OpImport& op);
ImportValue reduce_mean(const OpImport& op);

ImportValue same(const OpImport& op);
ImportValue cast(const OpImport& op);
ImportValue shape(const OpImport& op);
ImportValue flatten(const OpImport& op);
ImportValue reshape(const OpImport& op);
ImportValue squeeze(const OpImport& op);
ImportValue unsqueeze(const OpImport& op);
ImportValue transpose(const OpImport& op);
ImportValue concat(const OpImport& op);

/// A plain function of the operator table.
ImportValue plain_function(const OpImport& op);
/// A plain function whose integers may overflow.
ImportValue wrapped_function(const OpImport& op);
/// A plain function found by a pattern. The node has the name of the row.
ImportValue recognised_function(const OpImport& op);
ImportValue selu(const OpImport& op);
ImportValue hard_sigmoid(const OpImport& op);
ImportValue prelu(const OpImport& op);
ImportValue clip(const OpImport& op);
ImportValue softmax(const OpImport& op);
ImportValue log_softmax(const OpImport& op);
ImportValue dropout(const OpImport& op);

ImportValue add(const OpImport& op);
ImportValue subtract(const OpImport& op);
ImportValue multiply(const OpImport& op);
ImportValue divide(const OpImport& op);
ImportValue power(const OpImport& op);
ImportValue minimum(const OpImport& op);
ImportValue maximum(const OpImport& op);
ImportValue sum_of_all(const OpImport& op);
ImportValue negation(const OpImport& op);
ImportValue conjunction(const OpImport& op);
ImportValue disjunction(const OpImport& op);
ImportValue exclusive_or(const OpImport& op);
ImportValue where(const OpImport& op);
ImportValue reduce_sum(const OpImport& op);
ImportValue reduce_max(const OpImport& op);
ImportValue reduce_min(const OpImport& op);
ImportValue reduce_any_mean(const OpImport& op);
ImportValue reduce_l1(const OpImport& op);
ImportValue reduce_l2(const OpImport& op);
ImportValue reduce_sum_square(const OpImport& op);
ImportValue reduce_log_sum(const OpImport& op);
ImportValue reduce_log_sum_exp(const OpImport& op);
ImportValue reduce_product(const OpImport& op);
ImportValue cumulative_sum(const OpImport& op);
ImportValue triangle(const OpImport& op);
ImportValue remainder(const OpImport& op);
ImportValue tangent(const OpImport& op);
ImportValue hyperbolic(const OpImport& op);

ImportValue slice(const OpImport& op);
ImportValue split(const OpImport& op);
ImportValue gather(const OpImport& op);
ImportValue gather_nd(const OpImport& op);
ImportValue expand(const OpImport& op);
ImportValue constant_of_shape(const OpImport& op);
/// Of a pattern: `shape` is that of a sample.
ImportValue strided(const OpImport& op);
ImportValue recurrent(const OpImport& op);
ImportValue einsum(const OpImport& op);
ImportValue tile(const OpImport& op);
ImportValue pad(const OpImport& op);
/// Of a mark that quantized files leave (export/onnx/reader/quantized): a layer "on_grid_7".
ImportValue on_grid(const OpImport& op);
ImportValue depth_to_space(const OpImport& op);
ImportValue space_to_depth(const OpImport& op);
ImportValue resize(const OpImport& op);
ImportValue upsample(const OpImport& op);

}  // namespace fq::detail::onnx_ops
