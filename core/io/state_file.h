#pragma once

/// StateDict to disk and back: our HDF5 files (docs/formats.md).

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

/// Writes `state` to `path`: beside, synced, renamed (atomic_file.h); the same state gives the same bytes.
/// Every dtype and layout; elements are written in logical row-major order. The file is built in memory
/// first, which takes as much again as the tensors. `kind` says what the state is of, in at most 31 bytes.
/// Throws ArgumentError for a tensor on `meta`, a name below another tensor's name or the name "attributes"
/// (the attributes are there); FileError when `path` cannot be written; SystemError when the disk is full.
/// What was at `path` before stays then.
void save_state(const std::string& path, const StateDict& state, std::string_view kind);

/// The same to a file that the caller commits, together with others.
void save_state(AtomicFile& file, const StateDict& state, std::string_view kind);

/// Reads what `save_state` wrote, of this and every older version. Checksums are verified before HDF5 sees
/// the file, so that nothing in a damaged file is believed. Throws FileError, in one line: missing, not ours,
/// truncated, damaged (naming the dataset, if the damage is in one), of a newer version, of another kind than
/// `kind` (an empty `kind` takes any).
[[nodiscard]] StateDict load_state(const std::string& path, std::string_view kind);

/// Reads and checks the first 512 bytes only. Throws FileError as `load_state`.
[[nodiscard]] StateFileInfo state_file_info(const std::string& path);

}  // namespace fq
