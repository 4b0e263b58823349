#pragma once

/// The layer types of model files: from the options of a node to a module.
///
///     register_layer_type("my_linear", {"in_features", "out_features"}, [](const LayerOptions& options) {
///       const std::int64_t in = options.inferred("in_features", -1), out = options.outputs("out_features");
///       options.reserve({out, in});
///       return std::make_shared<Linear>(in, out);
///     });
///
/// A type is known to files, checkpoints and `build_model` of this process from then on; one who loads a
/// checkpoint with such a node registers the type first.

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

/// The options of one node, as a factory reads them, and what it has to know of the network around it. It
/// lives as long as the call.
///
/// Every reader throws for a missing option (where there is no fallback), another type, or a value out of
/// range, naming the option and its place: FileError with file and line for a model file, else ArgumentError.
class LayerOptions {
 public:
  /// The largest number that an option may be unless a reader is told another.
  static constexpr std::int64_t largest = std::numeric_limits<std::int32_t>::max();

  LayerOptions(const ModelNode& node, const std::vector<Shape>& inputs, std::int64_t classes,
               detail::ModelBudget& budget, const detail::EarlierModules* earlier = nullptr);

  /// Shapes of the node's inputs, with a batch of any size first.
  [[nodiscard]] const std::vector<Shape>& inputs() const noexcept { return inputs_; }
  /// Whether the file gives the option.
  [[nodiscard]] bool has(const std::string& name) const;
  /// Whether it is there as a text.
  [[nodiscard]] bool is_text(const std::string& name) const;
  /// A text; throws where the option is missing.
  [[nodiscard]] std::string text(const std::string& name) const;

  /// A whole number from `low` to `high`.
  [[nodiscard]] std::int64_t integer(const std::string& name, std::int64_t low = 1,
                                     std::int64_t high = largest) const;
  /// The same, with a value for a missing option.
  [[nodiscard]] std::int64_t integer_or(const std::string& name, std::int64_t fallback, std::int64_t low = 1,
                                        std::int64_t high = largest) const;
  /// An output size: a whole number, or "classes" for the number of classes of the data.
  [[nodiscard]] std::int64_t outputs(const std::string& name) const;
  /// The size of the first input along `axis`. The option may be left out; it throws when it says another
  /// size.
  [[nodiscard]] std::int64_t inferred(const std::string& name, int axis) const;
  /// A whole number, or a list of up to `most`; empty when the option is missing.
  [[nodiscard]] std::vector<std::int64_t> sizes(const std::string& name, std::int64_t low = 1,
                                                std::int64_t high = largest, std::size_t most = 8) const;
  /// One number an axis (height, width), or one for both.
  [[nodiscard]] std::array<std::int64_t, 2> pair_or(const std::string& name, std::int64_t fallback,
                                                    std::int64_t low = 1) const;
  /// A number from `low` to `high`.
  [[nodiscard]] double number(const std::string& name, double low, double high) const;
  /// The same, with a value for a missing option.
  [[nodiscard]] double number_or(const std::string& name, double fallback, double low, double high) const;
  /// One to eight numbers; the option is there.
  [[nodiscard]] std::vector<double> numbers(const std::string& name, double low, double high) const;
  /// true or false.
  [[nodiscard]] bool flag_or(const std::string& name, bool fallback) const;
  /// The parameter `weight` of an earlier layer of the same list of nodes, which the option names.
  [[nodiscard]] Variable weight_of(const std::string& name) const;
  /// One of `allowed`.
  [[nodiscard]] std::string choice_or(const std::string& name, const std::string& fallback,
                                      const std::vector<std::string>& allowed) const;

  /// Call it before making parameters of that shape: it throws when the model would have more elements than
  /// the limit of BuildOptions, so that no text makes the program allocate without bound.
  void reserve(const Shape& parameter) const;
  /// Throws `message` with the place of this node: for what only the factory can check.
  [[noreturn]] void fail(const std::string& message) const;

 private:
  /// Throws `message` with the place of the option `name`.
  [[noreturn]] void fail_at(const std::string& name, const std::string& message) const;

  const ModelNode& node_;
  const std::vector<Shape>& inputs_;
  std::int64_t classes_;
  detail::ModelBudget& budget_;
  const detail::EarlierModules* earlier_;
};

/// Makes the module of a node. What it throws as ArgumentError is given the place of the node.
using LayerFactory = std::function<std::shared_ptr<Module>(const LayerOptions& options)>;

/// Makes `type` known to model files, with the names of its options; others are refused before the factory is
/// called. Registering a type again replaces it. Not while other threads build models. Throws ArgumentError
/// for an empty name or without a factory.
void register_layer_type(const std::string& type, std::vector<std::string> options, LayerFactory make);
/// All of them, in alphabetical order; "graph" and "sequential", whose nodes are nested, included.
[[nodiscard]] std::vector<std::string> layer_types();

}  // namespace fq
