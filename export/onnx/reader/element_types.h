#pragma once

/// Element types of the values of a graph. Layers compute in f32. Additional layers give integers and 16-bit
/// floats their ONNX behaviour.

#include <string>
#include <unordered_map>
#include <vector>

#include "fakequant/export/onnx/model.h"
#include "fakequant/export/onnx/reader/node_reader.h"

namespace fq::detail {

class OpImport;
struct ImportValue;

/// Element type of a value in the file.
struct ElementType {
  DType dtype = DType::f32;
  bool boolean = false;  ///< 0 or 1; the dtype is u8

  [[nodiscard]] bool is_integer() const noexcept { return !boolean && !is_floating(dtype); }
  friend bool operator==(const ElementType&, const ElementType&) = default;
};

/// Types of all values of a graph, by name.
class ElementTypes {
 public:
  explicit ElementTypes(const OnnxModel& model);
  /// Returns f32 for an unknown name.
  [[nodiscard]] ElementType of(const std::string& name) const;

 private:
  void add(const std::vector<OnnxNode>& nodes);
  void add(const OnnxInitializer& value);
  [[nodiscard]] ElementType result(const OnnxNode& node, std::size_t output) const;

  std::unordered_map<std::string, ElementType> types_;
};

/// Returns the type of the attribute 'to' of a Cast. Throws ArgumentError unless it is f32, f64, f16, bf16,
/// i8, u8, i16, u16, i32, i64 or bool.
[[nodiscard]] ElementType cast_type(const NodeReader& node);
/// Replaces each CastLike by a Cast to the type of its second input.
[[nodiscard]] std::vector<OnnxNode> with_casts(std::vector<OnnxNode> nodes, const ElementTypes& types);

}  // namespace fq::detail

/// Layers that give f32 values the behaviour of integers and 16-bit floats.
namespace fq::detail::onnx_ops {

/// Converts `x` like ONNX's Cast: floats lose their fraction or are rounded to 16 bits. Integers outside an
/// 8-bit or 16-bit type wrap. Integers of 32 and 64 bits are exact up to 2^24.
ImportValue converted(const OpImport& op, const ImportValue& x, ElementType from, ElementType to);
/// Removes the fraction if the node computes integers.
ImportValue truncated(const OpImport& op, const ImportValue& x);
/// Wraps `x` if the node computes integers of 8 or 16 bits.
ImportValue wrapped(const OpImport& op, const ImportValue& x);

}  // namespace fq::detail::onnx_ops
