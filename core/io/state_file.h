#pragma once

/// StateDict to disk and back: our HDF5 files (docs/formats.md).
///
///     StateDict state;
///     state.set("weight", Tensor::zeros({64, 32}));
///     save_state("part.h5", state, "my part");
///     const StateDict back = load_state("part.h5", "my part");
///
/// Any reader of HDF5 opens them: tensors are datasets, attributes JSON texts. The first 512 bytes are ours:
/// kind, version, length and a checksum of all the rest.

#include <cstdint>
#include <string>
#include <string_view>

#include "fakequant/core/io/state_dict.h"

namespace fq {

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
