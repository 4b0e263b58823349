#include "fakequant/export/onnx/reader/conversions.h"

#include <cmath>

namespace fq::detail::onnx_ops {
namespace {

bool is_unsigned(DType type) { return type == DType::u8 || type == DType::u16; }

/// Whether every number of the type `from` is one of `to`.
bool contains(DType to, DType from) {
  if (to == from) return true;
  return bit_width(to) > bit_width(from) && (is_unsigned(from) || !is_unsigned(to));
}

/// x - 2^bits * floor((x + half) / 2^bits): the number that has the same lowest bits. Exact below 2^23.
ImportValue wrapped_to(const OpImport& op, const ImportValue& x, DType type) {
  const double count = std::ldexp(1.0, bit_width(type));
  ImportValue turns = op.layer("scale", {{"factor", 1 / count}}, {x}, {}, "turns");
  if (!is_unsigned(type)) turns = op.layer("shift", {{"by", 0.5}}, {turns}, {}, "turns");
  turns = op.layer("floor", {}, {turns}, {}, "turns");
  const auto whole = op.layer("scale", {{"factor", count}}, {turns}, {}, "turns");
  return op.layer("sub", {}, {x, whole}, {}, "wrapped");
}

}  // namespace

ImportValue converted(const OpImport& op, const ImportValue& x, ElementType from, ElementType to) {
  if (from == to || (from.boolean && !to.boolean)) return x;
  if (to.boolean) return op.layer("sign", {}, {op.layer("abs", {}, {x}, {}, "abs")});
  if (to.dtype == DType::f32 || to.dtype == DType::f64) return x;
  if (is_floating(to.dtype)) {
    if (from.is_integer() && bit_width(from.dtype) == 8) return x;
    return op.layer("round_to", {{"type", std::string(name(to.dtype))}}, {x});
  }
  const ImportValue y = from.is_integer() ? x : op.layer("trunc", {}, {x});
  const bool fits = bit_width(to.dtype) > 16 || (from.is_integer() && contains(to.dtype, from.dtype));
  return fits ? y : wrapped_to(op, y, to.dtype);
}

ImportValue truncated(const OpImport& op, const ImportValue& x) {
  return op.result_type().is_integer() ? op.layer("trunc", {}, {x}, {}, "trunc") : x;
}

ImportValue wrapped(const OpImport& op, const ImportValue& x) {
  const ElementType type = op.result_type();
  return type.is_integer() && bit_width(type.dtype) <= 16 ? wrapped_to(op, x, type.dtype) : x;
}

}  // namespace fq::detail::onnx_ops
