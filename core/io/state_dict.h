#pragma once

/// StateDict: what modules, calibrators, optimizers and data loaders give to be saved and take when loaded.
///
///     StateDict state;
///     state.merge(optimizer.state_dict(), "optimizer");
///     state.set_attribute("epoch", 3);
///     save_state("run.h5", state, "checkpoint");                        // core/io/state_file.h
///     optimizer.load_state(load_state("run.h5", "checkpoint").sub("optimizer"));

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fakequant/core/tensor.h"

namespace fq {

/// Tensors by name, in the order they were put in, and JSON attributes by name. Names are paths with '/'
/// ("parameters/conv1/weight"); tensors and attributes are named independently, and `merge` and `sub` treat
/// both alike.
///
/// Tensors are handles: a StateDict shares their storage and copies nothing, so that a state taken from a
/// model changes as the model is trained; `clone` or save what is to stay. Copies of a StateDict copy the
/// names; one that was moved from may only be assigned to or destroyed.
class StateDict {
 public:
  using Entry = std::pair<std::string, Tensor>;

  /// Empty: no tensors and no attributes.
  StateDict();
  StateDict(const StateDict& other);
  StateDict(StateDict&& other) noexcept;
  StateDict& operator=(StateDict other) noexcept;
  ~StateDict();

  /// Puts `tensor` last, or in the place of one of that name. Throws ArgumentError for an undefined tensor
  /// and for a name that is empty, has more than 64 parts, an empty or "." one, or holds a zero byte.
  void set(std::string name, Tensor tensor);
  [[nodiscard]] bool contains(std::string_view name) const;
  /// The tensor of that name. Throws ArgumentError naming the nearest names.
  [[nodiscard]] const Tensor& at(std::string_view name) const;
  /// As `at`, and throws ArgumentError unless shape and dtype are these.
  [[nodiscard]] const Tensor& at(std::string_view name, const Shape& shape, DType dtype) const;
  /// Names and tensors in the order in which they were put in.
  [[nodiscard]] const std::vector<Entry>& tensors() const noexcept;
  /// The names of the tensors, in that order.
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] std::size_t size() const noexcept { return tensors().size(); }

  /// Puts or replaces a JSON value; names are as for tensors. Doubles are kept exactly; JSON has no NaN or
  /// infinity, which become null in a file.
  void set_attribute(std::string name, nlohmann::json value);
  [[nodiscard]] bool has_attribute(std::string_view name) const;
  /// The value of that name. Include nlohmann/json.hpp to look into it. Throws ArgumentError naming the
  /// nearest names.
  [[nodiscard]] const nlohmann::json& attribute(std::string_view name) const;
  /// An object of all attributes, sorted by name.
  [[nodiscard]] const nlohmann::json& attributes() const noexcept;

  /// Puts in everything of `other` as `prefix/name`, or as `name` when `prefix` is empty. Throws
  /// ArgumentError when a name is taken; then nothing was put in.
  void merge(const StateDict& other, std::string_view prefix = {});
  /// Everything below `prefix/`, without the prefix; empty when there is nothing.
  [[nodiscard]] StateDict sub(std::string_view prefix) const;
  /// Whether a tensor or an attribute lies below `prefix/`.
  [[nodiscard]] bool has_sub(std::string_view prefix) const;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

/// Whether both have the same names in the same order, the same bits, and equal attributes.
[[nodiscard]] bool bitwise_equal(const StateDict& a, const StateDict& b);

}  // namespace fq
