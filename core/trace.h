#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "fakequant/core/blocks/shape.h"
#include "fakequant/core/context.h"
#include "fakequant/core/dtype.h"

namespace fq::detail {

/// A std::variant that survives a throwing copy. libstdc++ (12 and others) assumes that a variant of
/// numbers, strings and vectors is never valueless. If a copy runs out of memory, it then destroys an object
/// that was not constructed.
template <class... Types>
struct CopyableVariant : std::variant<Types...> {
  using Base = std::variant<Types...>;
  using Base::Base;
  using Base::operator=;

  CopyableVariant(const CopyableVariant& other) : Base(copy(other)) {}
  CopyableVariant(CopyableVariant&&) noexcept = default;
  CopyableVariant& operator=(const CopyableVariant& other) { return *this = CopyableVariant(other); }
  CopyableVariant& operator=(CopyableVariant&&) noexcept = default;
  ~CopyableVariant() = default;

 private:
  static Base copy(const Base& other) {
    return std::visit([]<class T>(const T& value) { return Base(std::in_place_type<T>, value); }, other);
  }
};

}  // namespace fq::detail

/// Trace: the graph of named operators that a model executed.
///
/// Every operator reports to a thread-local recorder (null by default); modules add their path. Summary,
/// batch-norm folding, placement of quantizers and export read this graph instead of the module tree.
/// Networks written in plain C++ therefore work like networks from files. layers/model/trace.h traces a
/// model on `meta`; to trace a model that computes values, install a recorder:
///
///     Recorder recorder;
///     const RecordScope scope(recorder);
///     recorder.mark_input(x);
///     const TraceGraph graph = recorder.finish(model(x));

namespace fq {

class Variable;
namespace detail {
struct Node;
}

/// A setting of an operator, by name: {"stride", {2, 2}}, {"axis", 1}.
using Attribute = detail::CopyableVariant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>,
                                          std::vector<double>>;
/// Attributes in the operator's order.
using Attributes = std::vector<std::pair<std::string, Attribute>>;

/// A tensor of the graph, identified by its index in TraceGraph::values. `producer` is the index of its
/// node, or -1 for inputs, parameters and constants.
struct TraceValue {
  /// Logical shape, including the traced batch size.
  Shape shape;
  int producer = -1;
  std::string name;          ///< name of a parameter or input, if known
  std::vector<int> readers;  ///< nodes in execution order, once per use
};

/// One call of one operator. A module that runs twice has two nodes with the same path.
struct TraceNode {
  std::string path;  ///< path of the innermost calling module: "stage1.conv2"
  std::string op;    ///< "conv2d", "relu", ..
  Attributes attributes;
  std::vector<int> inputs;  ///< indices of values; -1 for an input that was not given
  int output = -1;          ///< index of a value

  /// Returns the attribute with this name. Throws std::out_of_range if there is none,
  /// std::bad_variant_access if it has another type.
  template <class T>
  [[nodiscard]] const T& attribute(std::string_view name) const;
};

/// A recorded graph, with nodes in execution order. Holds no tensors and no reference to the model.
struct TraceGraph {
  std::vector<TraceNode> nodes;
  std::vector<TraceValue> values;  ///< inputs, parameters, constants and outputs of nodes, by first use
  std::vector<int> inputs;         ///< values marked as inputs of the network
  int output = -1;                 ///< value that the network returns; -1 before `finish`

  /// Returns the value that `node` reads as input `i`. Throws ArgumentError if there is none.
  [[nodiscard]] const TraceValue& input(const TraceNode& node, std::size_t i) const;
};

/// Records the operators of this thread while it is installed (RecordScope). Values are identified by
/// address, so the recorder keeps all of them alive until it is destroyed. Trace on `meta`, or with a batch
/// that fits into memory. Override `record_op` to process values instead, as ClipCounter (export/scales.h)
/// does.
class Recorder {
 public:
  Recorder() = default;
  virtual ~Recorder() = default;
  Recorder(const Recorder&) = delete;  // installed by address
  Recorder& operator=(const Recorder&) = delete;

  /// Names an input or a parameter. Call it before the value is first read or marked.
  void name(const Variable& variable, std::string name);
  /// Receives every operator call. The inputs are in the operator's order, undefined if not given. The
  /// output may hold codes or sums. Exceptions propagate out of the operator.
  virtual void record_op(std::string_view op, const std::vector<Variable>& inputs, const Variable& output,
                         Attributes attributes);
  /// Adds a value to the network's inputs.
  void mark_input(const Variable& variable);
  /// Moves the graph out of the recorder, with `output` as its result. The recorder cannot be used
  /// afterwards.
  [[nodiscard]] TraceGraph finish(const Variable& output);

 private:
  int id(const Variable& variable);

  TraceGraph graph_;
  std::unordered_map<const detail::Node*, int> ids_;
  std::unordered_map<const detail::Node*, std::string> names_;
  std::vector<std::shared_ptr<detail::Node>> alive_;  // addresses identify values, so none may be reused
};

/// Installs a recorder on this thread for the lifetime of this object, then restores the previous one.
class RecordScope : public ScopedValue<Recorder*> {
 public:
  /// `recorder` must outlive this object.
  explicit RecordScope(Recorder& recorder) : ScopedValue(context().recorder, &recorder) {}
};

/// Returns the recorder of this thread, or null. Operators use it to skip work that only a trace needs.
[[nodiscard]] inline Recorder* recorder() noexcept { return context().recorder; }

/// Appends a name to this thread's module path for the lifetime of this object, separated by a dot. An empty
/// name leaves the path unchanged. Module::operator() opens a scope. Other functions may open one to appear
/// separately in traces and profiles.
class PathScope {
 public:
  /// `name` is "conv1", or several names separated by dots.
  explicit PathScope(std::string_view name);
  ~PathScope();
  PathScope(const PathScope&) = delete;  // tied to its block
  PathScope& operator=(const PathScope&) = delete;

 private:
  std::size_t previous_;
};
/// Returns the path of the innermost module that is running on this thread, "stage1.conv2"; "" outside of
/// modules.
[[nodiscard]] inline const std::string& module_path() noexcept { return context().path; }

template <class T>
const T& TraceNode::attribute(std::string_view name) const {
  for (const auto& [key, value] : attributes)
    if (key == name) return std::get<T>(value);
  throw std::out_of_range("[trace] " + op + " has no attribute " + std::string(name));
}

}  // namespace fq
