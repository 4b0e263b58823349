#pragma once

/// Table of the supported ONNX operators.

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fakequant/core/ops/operators.h"
#include "fakequant/export/onnx/reader/op_import.h"
#include "fakequant/export/onnx/reader/operator_checks.h"

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

/// Returns rows of the plain functions of the operator table (core/ops/operators.h), and of other ONNX
/// operators.
[[nodiscard]] const std::vector<OperatorRow>& operator_table();
/// Returns the plain function of the operator table for an ONNX operator, or null.
[[nodiscard]] const OperatorSchema* plain_row(std::string_view onnx);
/// Returns null for operators that are not in the table.
[[nodiscard]] const Operator* find_operator(const OnnxNode& node);

}  // namespace fq::detail

namespace fq::detail::onnx_ops {

/// Builds the layers of a node and returns its first output.
using Build = ImportValue(const OpImport& op);

/// Builds a plain function of the operator table.
Build plain_function;
/// Builds a plain function whose integers may overflow.
Build wrapped_function;
/// Builds a plain function found by a pattern. The node has the name of the table row.
Build recognised_function;
Build add, cast, clip, concat, conjunction, constant_of_shape, conv, conv_transpose, cumulative_sum,
    disjunction, divide, dropout, einsum, embedding, exclusive_or, expand, flatten, gather, gather_nd,
    hard_sigmoid, hyperbolic, log_softmax, maximum, minimum, multiply, negation, pad, power, prelu, recurrent,
    remainder, reshape, resize, same, selu, shape, slice, softmax, split, squeeze, subtract, sum_of_all,
    tangent, tile, transpose, triangle, unsqueeze, upsample, where;
Build batch_norm, group_norm, instance_norm, local_response_norm, rms_norm;
Build average_pool, depth_to_space, global_average_pool, global_max_pool, max_pool, space_to_depth;
Build reduce_any_mean, reduce_l1, reduce_l2, reduce_log_sum, reduce_log_sum_exp, reduce_max, reduce_mean,
    reduce_min, reduce_product, reduce_sum, reduce_sum_square;
/// Products. A third input is the bias.
Build gemm, matmul;
/// Builds the operator of opsets 23 to 25.
Build attention;
/// Builds a layer norm. In a pattern, `axes` are the axes of ReduceMean, and scale and bias are optional.
Build layer_norm;
/// Builds a node of a pattern. `shape` is the shape of a sample.
Build strided;
/// Builds a mark of quantized files (export/onnx/reader/quantized): a layer "on_grid_7".
Build grid_mark;

/// Returns options of a layer scaled_dot_product_attention for queries of the shape `q`.
NodeOptions attention_options(const Shape& q, double scale, bool causal);
/// Removes a mark: returns the marked value and the index of its grid. Without a mark, returns `x` and -1.
std::pair<ImportValue, int> remove_mark(const OpImport& op, const ImportValue& x);
/// Returns the output of an attention layer whose weights were quantized to a grid.
ImportValue mark_weights_grid(const OpImport& op, const ImportValue& y, int index);
/// Returns one attention layer for the product of weights `p` and values `v`. Returns no value unless a
/// softmax of query-key scores computed the weights. A trained bias of the scores is not supported.
std::optional<ImportValue> match_attention(const OpImport& op, const ImportValue& p, const ImportValue& v);

}  // namespace fq::detail::onnx_ops
