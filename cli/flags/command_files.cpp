#include "fakequant/cli/flags/command_files.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>
#include <unistd.h>

#include "fakequant/cli/flags/output_kind.h"
#include "fakequant/cli/initial_weights.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/core/io/detail/unfinished_file.h"
#include "fakequant/layers/model/builtin_models.h"
#include "fakequant/layers/quantize.h"

namespace fq::cli {
namespace {

namespace fs = std::filesystem;

bool is_regular(const std::string& path) {
  std::error_code none;
  return fs::is_regular_file(path, none);
}

/// Returns true for two paths of one regular file, also through symbolic and hard links. For missing files,
/// compares their canonical paths. Devices are never the same file, because several flags may name one
/// device.
bool same_file(const std::string& a, const std::string& b) {
  std::error_code none;
  const bool here = fs::exists(a, none), there = fs::exists(b, none);
  if (here != there) return false;
  if (here) return is_regular(a) && fs::equivalent(a, b, none);
  const auto first = fs::weakly_canonical(fs::absolute(a, none), none);
  return !none && first == fs::weakly_canonical(fs::absolute(b, none), none);
}

// --model takes a file or a built-in name. The name is not an input file, even if a file of that name exists.
bool is_builtin_model(const std::string& flag, const std::string& value) {
  const auto names = builtin_models();
  return flag == "model" && std::ranges::find(names, value) != names.end();
}

/// Adds an input file, with the data file that PyTorch's exporters write next to a large model.
void add_read(std::vector<ReadFile>& out, const std::string& flag, const std::string& path) {
  out.push_back({flag, path});
  if (path.ends_with(".onnx") && is_regular(path + ".data")) out.push_back({flag, path + ".data"});
}

/// An output file and its flag.
struct OutputFile {
  std::string flag;
  WrittenFile file;
};

// `written` may return several files for one flag, for example a checkpoint and the best epoch.
std::vector<OutputFile> outputs(const FlagSet& set, const Flags& flags) {
  std::vector<OutputFile> out;
  for (const auto& [flag, written] : set.file_flags())
    if (written && flags.has(flag))
      for (auto& file : written())
        if (!file.path.empty()) out.push_back({flag, std::move(file)});
  return out;
}

void check_not_read(const OutputFile& output, const std::vector<ReadFile>& read, const std::string& command) {
  for (const auto& [flag, path] : read)
    // A resumed run reads and writes one checkpoint: `may_be` names the input flag that allows this.
    FQ_CHECK(flag == output.file.may_be || !same_file(output.file.path, path), command,
             "--{} would write over {}, which --{} reads: name another file", output.flag, path, flag);
}

void check_kind(const OutputFile& output, const Flags& flags) {
  const std::string found = output_kind(output.file.path);
  // A file of the same kind is probably the output of an earlier call and is replaced.
  FQ_CHECK(found.empty() || found == output.file.kind || flags.on("force"), flags.command(),
           "--{} would replace {}, which is {}, by {}: name another file, or give --force", output.flag,
           output.file.path, found, output.file.kind);
}

/// Creates the folder of an output file. Adds the new folders before `made`, the innermost first.
void make_parent_folder(const WrittenFile& file, std::vector<std::string>& made) {
  if (!file.make_folder) return;
  const fs::path folder = fs::path(file.path).parent_path();
  std::error_code error;
  std::vector<std::string> missing;
  // Collects missing folders from the inside out, so that they can be removed in this order after a failure.
  for (fs::path at = folder; !at.empty() && !fs::exists(at, error); at = at.parent_path())
    missing.push_back(at.string());
  error.clear();
  if (!folder.empty()) fs::create_directories(folder, error);
  for (const auto& folder_made : missing)
    // The parent stores the name of the new folder. Without the sync, a power failure could lose it with its
    // files.
    (void)fq::detail::sync_folder(fq::detail::parent_folder(folder_made));
  made.insert(made.begin(), missing.begin(), missing.end());
  if (error)
    throw FileError(
        folder.string(), "",
        fmt::format("[write_file] the folder {} cannot be made: {}", folder.string(), error.message()));
}

/// Returns the input files. The name of a built-in model is not a file.
std::vector<ReadFile> read_files(const FlagSet& set, const Flags& flags) {
  std::vector<ReadFile> out;
  for (const auto& [flag, written] : set.file_flags()) {
    if (written || !flags.has(flag)) continue;
    for (const auto& path : set.is_list(flag) ? flags.list(flag) : std::vector{flags.text(flag)})
      if (!path.empty() && !is_builtin_model(flag, path)) add_read(out, flag, path);
  }
  return out;
}

/// Returns the output files after all checks. Changes nothing.
std::vector<OutputFile> checked_outputs(const FlagSet& set, const Flags& flags,
                                        const std::vector<ReadFile>& others) {
  auto all = outputs(set, flags);
  auto read = read_files(set, flags);
  read.insert(read.end(), others.begin(), others.end());
  for (auto output = all.begin(); output != all.end(); ++output) {
    check_not_read(*output, read, flags.command());
    for (auto other = all.begin(); other != output; ++other)
      FQ_CHECK(!same_file(output->file.path, other->file.path), flags.command(),
               "--{} and --{} would both write {}: name two files", other->flag, output->flag,
               output->file.path);
    check_kind(*output, flags);
  }
  return all;
}

}  // namespace

std::vector<std::string> check_files(const FlagSet& set, const Flags& flags,
                                     const std::vector<ReadFile>& others) {
  std::vector<std::string> made;
  try {
    for (const auto& output : checked_outputs(set, flags, others)) {
      make_parent_folder(output.file, made);
      check_writable(output.file.path);
    }
  } catch (...) {
    remove_empty(made);
    throw;
  }
  return made;
}

void remove_empty(const std::vector<std::string>& folders) noexcept {
  // rmdir fails for folders that are not empty, which is what protects files of other programs.
  for (const auto& folder : folders) ::rmdir(folder.c_str());
}

std::vector<std::string> files_to_write(const FlagSet& set, const Flags& flags,
                                        const std::vector<ReadFile>& others) {
  std::vector<std::string> out;
  for (const auto& output : checked_outputs(set, flags, others)) out.push_back(output.file.path);
  return out;
}

namespace {

// Phases may write "out/a.h5" and read "out//a.h5". Links are not resolved, because the files do not exist
// yet.
std::string path_key(const std::string& path) {
  std::string key = std::filesystem::path(path).lexically_normal().string();
  while (key.size() > 1 && key.ends_with('/')) key.pop_back();
  return key;
}

}  // namespace

void PlannedFiles::add(const std::string& path, const Network& network) {
  identities_[path_key(path)] = network.identity();
}

void PlannedFiles::add(const std::string& path) { identities_[path_key(path)] = std::nullopt; }

bool PlannedFiles::holds(const std::string& path) const { return identities_.contains(path_key(path)); }

std::optional<Network> PlannedFiles::network(const std::string& path) const {
  const auto found = identities_.find(path_key(path));
  if (found == identities_.end()) return load_network(path);
  if (!found->second) return std::nullopt;
  // The network has the structure and the quantizers of the future checkpoint, with initial values. Plans
  // check nothing that depends on values.
  return Network::create(*found->second);
}

void PlannedFiles::check_there(const std::string& command, const std::string& flag,
                               const std::string& path) const {
  std::error_code error;
  if (holds(path) || std::filesystem::exists(path, error)) return;
  throw FileError(
      path, {},
      fmt::format("[{}] --{}: there is no file {}, and no earlier phase writes it", command, flag, path));
}

void stand_in_ranges(Network& network) {
  for (const auto& entry : named_quantizers(network.module())) {
    auto& quantizer = *entry.quantizer;
    if (quantizer.descriptor().needs_amax() && !quantizer.amax().defined())
      quantizer.set_amax(Tensor::scalar(1));
  }
}

}  // namespace fq::cli
