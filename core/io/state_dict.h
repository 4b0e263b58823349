#pragma once

/// StateDict: what modules, calibrators, optimizers and data loaders give to be saved and take when loaded.
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

/// StateDict to disk and back: our HDF5 files (docs/formats.md).
///
///     StateDict state;
///     state.set("weight", Tensor::zeros({64, 32}));
///     save_state("part.h5", state, "my part");
///     const StateDict back = load_state("part.h5", "my part");
///
/// Any reader of HDF5 opens them: tensors are datasets, attributes JSON texts. The first 512 bytes are ours:
/// kind, version, length and a checksum of all the rest.

class AtomicFile;

/// What the first bytes of one of our files say.
struct StateFileInfo {
  std::string kind;           ///< "checkpoint", "scales", ..
  std::uint32_t version = 0;  ///< of the format
  std::int64_t bytes = 0;     ///< of the whole file
};

/// Writes `state` to `path`. The file is written beside, synced and renamed, so that a crash leaves the old
/// file or the new one; the same state gives the same bytes.
///
/// Tensors may have every dtype and layout and lie on any device but `meta`; elements are written in logical
/// row-major order. The file is built in memory first, which takes as much again as the tensors. `kind` says
/// what the state is of, in at most 31 bytes.
///
/// Throws ArgumentError for a tensor on `meta`, a name below another tensor's name or the name "attributes"
/// (the attributes are there); FileError when `path` cannot be written; SystemError when the disk is full.
/// What was at `path` before stays then.
void save_state(const std::string& path, const StateDict& state, std::string_view kind);

/// The same to a file that the caller commits, to be put in place together with others.
void save_state(AtomicFile& file, const StateDict& state, std::string_view kind);

/// Reads what `save_state` wrote, of this and every older version; tensors come to the CPU. Checksums are
/// verified before HDF5 sees the file, so that nothing in a damaged file is believed.
///
/// Throws FileError, in one line, for a file that is missing, not ours, truncated, damaged (naming the
/// dataset, if the damage is in one), of a newer version, or of another kind than `kind` (an empty `kind`
/// takes any).
[[nodiscard]] StateDict load_state(const std::string& path, std::string_view kind);

/// Reads and checks the first 512 bytes only, which is quick for a file of any size. Throws FileError as
/// `load_state`.
[[nodiscard]] StateFileInfo state_file_info(const std::string& path);

}  // namespace fq
