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

/// A std::variant that survives a copy which throws. libstdc++ (12 and others) takes one of numbers, strings
/// and vectors for never valueless, and when a copy finds no memory calls a destructor of what was not made.
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

/// Trace: what a model did, as a graph of named operators.
///
/// Every operator reports at its door to a thread-local recorder, which is null by default; modules push
/// their path. Summary, batch-norm folding, placing of quantizers and export read this graph, never the
/// module tree, so that networks written as plain C++ work like those from files. layers/model/trace.h traces
/// a model on `meta`; to watch one that computes, install a recorder of one's own:
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

/// What an operator was told besides its inputs, by name: {"stride", {2, 2}}, {"axis", 1}.
using Attribute = detail::CopyableVariant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>,
                                          std::vector<double>>;
/// Attributes in the order in which the operator tells them.
using Attributes = std::vector<std::pair<std::string, Attribute>>;

/// A tensor of the graph, known by its index in TraceGraph::values. `producer` is the index of its node, -1
/// for inputs, parameters and constants.
struct TraceValue {
  /// The logical shape, with the batch that was traced.
  Shape shape;
  int producer = -1;
  std::string name;          ///< of a parameter or input where known
  std::vector<int> readers;  ///< nodes, in order, once per use
};

/// One call of one operator. A module that runs twice has two nodes of one path.
struct TraceNode {
  std::string path;  ///< of the innermost module that called it: "stage1.conv2"
  std::string op;    ///< "conv2d", "relu", ..
  Attributes attributes;
  std::vector<int> inputs;  ///< values; -1 for an input that was not given
  int output = -1;          ///< value

  /// The attribute of that name. Throws std::out_of_range when there is none, std::bad_variant_access when it
  /// has another type.
  template <class T>
  [[nodiscard]] const T& attribute(std::string_view name) const;
};

/// What was recorded, nodes in the order of execution. A value of its own: it holds no tensors and refers to
/// no model.
struct TraceGraph {
  std::vector<TraceNode> nodes;
  std::vector<TraceValue> values;  ///< inputs, parameters, constants and outputs of nodes, as they came up
  std::vector<int> inputs;         ///< values that were marked as the network's inputs
  int output = -1;                 ///< the network's result, a value; -1 before `finish`

  /// The value that `node` reads as its input `i`. Throws ArgumentError when it has none there.
  [[nodiscard]] const TraceValue& input(const TraceNode& node, std::size_t i) const;
};

/// Collects the operators that run on this thread while it is installed (RecordScope). It keeps every value
/// alive until it is destroyed, since values are known by address: trace on `meta`, or a batch that memory
/// has room for. Override `on_op` to watch values instead, as ClipCounter (export/scales.h) does.
class Recorder {
 public:
  Recorder() = default;
  virtual ~Recorder() = default;
  Recorder(const Recorder&) = delete;  // installed by address
  Recorder& operator=(const Recorder&) = delete;

  /// Names a value, an input or a parameter. It must be named before it is first read or marked.
  void name(const Variable& variable, std::string name);
  /// What every operator calls at its door. The inputs are in the operator's order, undefined where one was
  /// not given; the output may hold codes or sums. What it throws comes out of the operator.
  virtual void on_op(std::string_view op, const std::vector<Variable>& inputs, const Variable& output,
                     Attributes attributes);
  /// Adds a value to the network's inputs.
  void mark_input(const Variable& variable);
  /// The graph so far, with `output` as its result; the recorder gives it away and is then done.
  [[nodiscard]] TraceGraph finish(const Variable& output);

 private:
  int id(const Variable& variable);

  TraceGraph graph_;
  std::unordered_map<const detail::Node*, int> ids_;
  std::unordered_map<const detail::Node*, std::string> names_;
  std::vector<std::shared_ptr<detail::Node>> alive_;  // addresses identify values, so none may be reused
};

/// Installs a recorder on this thread while it lives; the one before comes back then.
class RecordScope : public ScopedValue<Recorder*> {
 public:
  /// `recorder` must outlive this.
  explicit RecordScope(Recorder& recorder) : ScopedValue(context().recorder, &recorder) {}
};

/// The recorder of this thread, or null: an operator that asks can leave out work that only a trace needs.
[[nodiscard]] inline Recorder* recorder() noexcept { return context().recorder; }

/// Appends a name to this thread's module path, behind a dot, while it lives. An empty name leaves the path
/// as it is. Module::operator() opens one; functions that are no modules may, to be told apart in traces and
/// profiles.
class PathScope {
 public:
  /// `name` is "conv1", or several names with dots between them.
  explicit PathScope(std::string_view name);
  ~PathScope();
  PathScope(const PathScope&) = delete;  // tied to its block
  PathScope& operator=(const PathScope&) = delete;

 private:
  std::size_t previous_;
};
/// The path of the innermost module that is running on this thread, "stage1.conv2"; "" outside of modules.
[[nodiscard]] inline const std::string& module_path() noexcept { return context().path; }

template <class T>
const T& TraceNode::attribute(std::string_view name) const {
  for (const auto& [key, value] : attributes)
    if (key == name) return std::get<T>(value);
  throw std::out_of_range("[trace] " + op + " has no attribute " + std::string(name));
}

}  // namespace fq
