#pragma once

/// Layer types of model files: make a module from the options of a node.
///
///     register_layer_type("my_linear", {"in_features", "out_features"}, [](const LayerOptions& options) {
///       const std::int64_t in = options.inferred("in_features", -1), out = options.outputs("out_features");
///       options.reserve({out, in});
///       return std::make_shared<Linear>(in, out);
///     });
///
/// Files, checkpoints and `build_model` of this process know a registered type. To load a checkpoint with
/// this node, register the type first.

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/layers/modules/module.h"

namespace fq {

struct ModelNode;

namespace detail {
struct ModelBudget;
using EarlierModules = std::map<std::string, std::shared_ptr<Module>>;
}  // namespace detail

/// Options of one node and the data about the network that a factory needs. The object is valid during the
/// factory call.
///
/// Every reader throws for a missing option (unless there is a fallback), a wrong type, or a value out of
/// range. The error names the option and its place: a FileError with file and line for a model file, else an
/// ArgumentError.
class LayerOptions {
 public:
  /// Default upper limit of integers.
  static constexpr std::int64_t largest = std::numeric_limits<std::int32_t>::max();

  LayerOptions(const ModelNode& node, const std::vector<Shape>& inputs, std::int64_t classes,
               detail::ModelBudget& budget, const detail::EarlierModules* earlier = nullptr);

  /// Returns the shapes of the node's inputs. The first axis is a batch of any size.
  [[nodiscard]] const std::vector<Shape>& inputs() const noexcept { return inputs_; }
  /// Whether the node has the option.
  [[nodiscard]] bool has(const std::string& name) const;
  /// Whether the node has the option and it is a text.
  [[nodiscard]] bool is_text(const std::string& name) const;
  /// Returns a text. Throws if the option is missing.
  [[nodiscard]] std::string text(const std::string& name) const;

  /// Returns an integer from `low` to `high`.
  [[nodiscard]] std::int64_t integer(const std::string& name, std::int64_t low = 1,
                                     std::int64_t high = largest) const;
  /// Returns an integer, or `fallback` if the option is missing.
  [[nodiscard]] std::int64_t integer_or(const std::string& name, std::int64_t fallback, std::int64_t low = 1,
                                        std::int64_t high = largest) const;
  /// Returns an output size: an integer, or the number of classes of the data for "classes".
  [[nodiscard]] std::int64_t outputs(const std::string& name) const;
  /// Returns the size of the first input along `axis`. The option is optional. Throws if it has another
  /// value.
  [[nodiscard]] std::int64_t inferred(const std::string& name, int axis) const;
  /// Returns a list of up to `most` integers. A single integer gives a list of one, a missing option an empty
  /// list.
  [[nodiscard]] std::vector<std::int64_t> sizes(const std::string& name, std::int64_t low = 1,
                                                std::int64_t high = largest, std::size_t most = 8) const;
  /// Returns one integer per axis (height, width). A single integer applies to both.
  [[nodiscard]] std::array<std::int64_t, 2> pair_or(const std::string& name, std::int64_t fallback,
                                                    std::int64_t low = 1) const;
  /// Returns a number from `low` to `high`.
  [[nodiscard]] double number(const std::string& name, double low, double high) const;
  /// Returns a number, or `fallback` if the option is missing.
  [[nodiscard]] double number_or(const std::string& name, double fallback, double low, double high) const;
  /// Returns one to eight numbers. Throws if the option is missing.
  [[nodiscard]] std::vector<double> numbers(const std::string& name, double low, double high) const;
  /// Returns a boolean, or `fallback` if the option is missing.
  [[nodiscard]] bool flag_or(const std::string& name, bool fallback) const;
  /// Returns the parameter `weight` of the earlier layer in the same list of nodes that the option names.
  [[nodiscard]] Variable tied_weight(const std::string& name) const;
  /// Returns one of `allowed`, or `fallback` if the option is missing.
  [[nodiscard]] std::string choice_or(const std::string& name, const std::string& fallback,
                                      const std::vector<std::string>& allowed) const;

  /// Reserves elements for a parameter of that shape. Call it before the parameter is allocated. Throws if
  /// the model would exceed the limit of BuildOptions, so that no file can cause an unlimited allocation.
  void reserve(const Shape& parameter) const;
  /// Throws `message` with the place of this node. Use it for checks that only the factory can do.
  [[noreturn]] void fail(const std::string& message) const;

 private:
  /// Throws `message` with the place of the option `name`.
  [[noreturn]] void fail_option(const std::string& name, const std::string& message) const;

  const ModelNode& node_;
  const std::vector<Shape>& inputs_;
  std::int64_t classes_;
  detail::ModelBudget& budget_;
  const detail::EarlierModules* earlier_;
};

/// Makes the module of a node. The caller adds the place of the node to an ArgumentError of the factory.
using LayerFactory = std::function<std::shared_ptr<Module>(const LayerOptions& options)>;

/// Registers `type` for model files, with its option names. Other options are rejected before the factory is
/// called. A second registration replaces the first. Do not call it while other threads build models. Throws
/// ArgumentError for an empty name or a missing factory.
void register_layer_type(const std::string& type, std::vector<std::string> options, LayerFactory make);
/// Returns all types in alphabetical order, including "graph" and "sequential", which contain nodes.
[[nodiscard]] std::vector<std::string> layer_types();

}  // namespace fq
