#pragma once

/// Who made an ONNX file, without reading its graph.

#include <optional>
#include <string>

namespace fq::cli {

/// The producer that a whole ONNX model names, which may be empty; none for what is no ONNX model. Steps over
/// the fields of the outermost message; throws nothing.
[[nodiscard]] std::optional<std::string> onnx_producer(const std::string& path);

}  // namespace fq::cli
