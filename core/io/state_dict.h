#pragma once

/// StateDict: the saved state of modules, calibrators, optimizers and data loaders.
///
///     StateDict state;
///     state.merge(optimizer.state_dict(), "optimizer");
///     state.set_attribute("epoch", 3);
///     save_state("run.h5", state, "checkpoint");
///     optimizer.load_state(load_state("run.h5", "checkpoint").sub("optimizer"));

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fakequant/core/tensor.h"

namespace fq {

/// Named tensors in insertion order, and named JSON attributes. Names are paths with '/'
/// ("parameters/conv1/weight"). Tensors and attributes have separate names; `merge` and `sub` apply to both.
///
/// A StateDict shares the storage of its tensors and copies no data. The state of a model therefore changes
/// while the model is trained; `clone` the tensors or save the state to keep it. Copies of a StateDict copy
/// the names. A moved-from StateDict may only be assigned to or destroyed.
class StateDict {
 public:
  using Entry = std::pair<std::string, Tensor>;

  /// Creates an empty state.
  StateDict();
  StateDict(const StateDict& other);
  StateDict(StateDict&& other) noexcept;
  StateDict& operator=(StateDict other) noexcept;
  ~StateDict();

  /// Appends `tensor`, or replaces the tensor of the same name. Throws ArgumentError for an undefined
  /// tensor, and for a name that is empty, has more than 64 parts, has an empty or "." part, or contains a
  /// zero byte.
  void set(std::string name, Tensor tensor);
  [[nodiscard]] bool contains(std::string_view name) const;
  /// Returns the tensor of that name. Throws ArgumentError that lists the nearest names.
  [[nodiscard]] const Tensor& at(std::string_view name) const;
  /// As `at`; also throws ArgumentError if shape or dtype differ.
  [[nodiscard]] const Tensor& at(std::string_view name, const Shape& shape, DType dtype) const;
  /// Names and tensors in insertion order.
  [[nodiscard]] const std::vector<Entry>& tensors() const noexcept;
  /// Names of the tensors in insertion order.
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] std::size_t size() const noexcept { return tensors().size(); }

  /// Adds or replaces a JSON value; the rules for names are as for tensors. Doubles are stored exactly. JSON
  /// has no NaN or infinity; a file stores them as null.
  void set_attribute(std::string name, nlohmann::json value);
  [[nodiscard]] bool has_attribute(std::string_view name) const;
  /// Returns the value of that name; include nlohmann/json.hpp to read it. Throws ArgumentError that lists
  /// the nearest names.
  [[nodiscard]] const nlohmann::json& attribute(std::string_view name) const;
  /// Returns an object of all attributes, sorted by name.
  [[nodiscard]] const nlohmann::json& attributes() const noexcept;

  /// Adds all entries of `other` as `prefix/name`, or as `name` if `prefix` is empty. Throws ArgumentError
  /// if a name exists already; the state is then unchanged.
  void merge(const StateDict& other, std::string_view prefix = {});
  /// Returns the entries below `prefix/`, without the prefix; may be empty.
  [[nodiscard]] StateDict sub(std::string_view prefix) const;
  /// Whether there is a tensor or an attribute below `prefix/`.
  [[nodiscard]] bool has_sub(std::string_view prefix) const;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

/// Whether both states have the same names in the same order, equal bits and equal attributes.
[[nodiscard]] bool bitwise_equal(const StateDict& a, const StateDict& b);

/// Saves and loads a StateDict as an HDF5 file (docs/formats.md).
///
///     StateDict state;
///     state.set("weight", Tensor::zeros({64, 32}));
///     save_state("part.h5", state, "my part");
///     const StateDict back = load_state("part.h5", "my part");
///
/// Any HDF5 reader can open these files: tensors are datasets, attributes are JSON texts. The first 512
/// bytes are a fakequant header with kind, version, length and a checksum of the rest.

class AtomicFile;

/// Header information of a state file.
struct StateFileInfo {
  std::string kind;           ///< "checkpoint", "scales", ..
  std::uint32_t version = 0;  ///< version of the format
  std::int64_t bytes = 0;     ///< size of the whole file
};

/// Writes `state` to `path`, atomically: after a crash there is either the old file or the new one. Equal
/// states give equal bytes.
///
/// Tensors may have any dtype and layout and be on any device except `meta`. Elements are written in logical
/// row-major order. The file is built in memory first, which needs the size of the tensors again. `kind` is
/// the type of the state, in at most 31 bytes.
///
/// Throws ArgumentError for a tensor on `meta`, a name below another tensor's name, or the name "attributes"
/// (reserved for the attributes). Throws FileError if `path` cannot be written, SystemError if the disk is
/// full. An existing file then stays unchanged.
void save_state(const std::string& path, const StateDict& state, std::string_view kind);

/// As above, to a file that the caller commits, possibly together with others.
void save_state(AtomicFile& file, const StateDict& state, std::string_view kind);

/// Reads a file of `save_state`, of this or an older version, to the CPU. Verifies the checksums first, so
/// that damaged data is never used.
///
/// Throws a one-line FileError for a file that is missing, foreign, truncated, damaged (naming the damaged
/// dataset, if it is one), of a newer version, or of another kind than `kind`. An empty `kind` accepts any.
[[nodiscard]] StateDict load_state(const std::string& path, std::string_view kind);

/// Reads and checks only the first 512 bytes, which is fast for files of any size. Throws FileError as
/// `load_state`.
[[nodiscard]] StateFileInfo state_file_info(const std::string& path);

}  // namespace fq
