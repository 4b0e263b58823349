#pragma once

/// ModelNode: one node of a model, as model files, importers and Python describe it.
///
///     ModelNode conv{.name = "conv1", .type = "conv2d"};
///     conv.options = {{"out_channels", std::int64_t{8}}, {"kernel", Shape{3, 3}}};
///     const ModelSpec spec("net", {conv, {.name = "relu", .type = "relu"}});

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace fq {

namespace detail {
class JsonText;
}

/// Value of an option.
using NodeOption =
    std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>, std::vector<double>>;

/// Options of a node by name, in insertion order.
class NodeOptions {
 public:
  using Entry = std::pair<std::string, NodeOption>;

  NodeOptions() = default;
  NodeOptions(std::initializer_list<Entry> entries) : entries_(entries) {}

  [[nodiscard]] bool empty() const noexcept { return entries_.empty(); }
  [[nodiscard]] auto begin() const noexcept { return entries_.begin(); }
  [[nodiscard]] auto end() const noexcept { return entries_.end(); }
  /// Returns null if there is no option `name`.
  [[nodiscard]] const NodeOption* find(std::string_view name) const noexcept;
  /// Returns the value of an option, or `fallback` if the option is missing or has another type. An integer
  /// converts to double.
  template <class T>
  [[nodiscard]] T value_or(std::string_view name, T fallback) const {
    const NodeOption* option = find(name);
    if (option == nullptr) return fallback;
    if constexpr (std::is_same_v<T, double>)
      if (const auto* whole = std::get_if<std::int64_t>(option)) return static_cast<double>(*whole);
    const T* value = std::get_if<T>(option);
    return value == nullptr ? fallback : *value;
  }
  /// Returns the value of an option to assign to. Adds a missing option.
  NodeOption& operator[](std::string_view name);
  /// Assigns all options of `other`.
  void update(const NodeOptions& other);

 private:
  std::vector<Entry> entries_;
};

/// Source of a node for error messages: a line of a model file, or the node of another format.
class NodePlace {
 public:
  NodePlace() = default;
  /// `origin` begins each message and names the node: "[import_onnx] node '/conv1/Conv' (Conv): ".
  explicit NodePlace(std::string origin) : origin_(std::move(origin)) {}
  /// The value at `pointer`, a JSON pointer, of a model file.
  NodePlace(std::shared_ptr<const detail::JsonText> text, std::string pointer);

  [[nodiscard]] bool empty() const noexcept { return origin_.empty(); }
  /// Whether errors have a line number.
  [[nodiscard]] bool has_line() const noexcept { return text_ != nullptr; }
  /// Returns the beginning of each message.
  [[nodiscard]] const std::string& origin() const noexcept { return origin_; }
  /// Throws `message` with this place: FileError if the node is from a file, else ArgumentError. `part` is
  /// the JSON pointer of a part of the node: "/options/kernel".
  [[noreturn]] void fail(const std::string& message, const std::string& part = {}) const;

 private:
  std::string origin_, pointer_;
  std::shared_ptr<const detail::JsonText> text_;
};

/// One node of a model.
struct ModelNode {
  std::string name;                      ///< empty: its type and position
  std::string type;                      ///< see `layer_types`
  NodeOptions options = {};              ///< none for "sequential" and "graph"
  std::vector<std::string> inputs = {};  ///< empty: the node before it
  std::vector<ModelNode> nodes = {};     ///< nodes of a "sequential" or "graph"
  NodePlace place = {};
};
using ModelNodes = std::vector<ModelNode>;

}  // namespace fq
