#pragma once

/// Where the files of a run directory are (docs/runs.md), and what stands at its place before a run begins.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "fakequant/cli/flags/flags.h"

namespace fq::cli {

/// Of the files of a run directory; a newer one is refused.
inline constexpr int kRunFormat = 1;

struct RunFolder {
  std::string path;  ///< ends with a slash

  [[nodiscard]] std::string file(const std::string& name) const { return path + name; }
  [[nodiscard]] std::string config() const { return file("config.json"); }
  [[nodiscard]] std::string metrics() const { return file("metrics.jsonl"); }
  [[nodiscard]] std::string log() const { return file("log.txt"); }
  [[nodiscard]] std::string page() const { return file("report.html"); }
  [[nodiscard]] std::string table() const { return file("metrics.csv"); }
  [[nodiscard]] std::string last() const { return file("checkpoints/last.h5"); }
  [[nodiscard]] std::string best() const { return file("checkpoints/best.h5"); }
  /// "RUN/checkpoints/epoch-0003.h5": the checkpoint of an epoch (keep_epochs), from 1.
  [[nodiscard]] std::string kept(std::int64_t epoch) const;
};

/// Whether that is the name of a folder: it ends with a slash, or one is there.
[[nodiscard]] bool names_folder(const std::string& path);
/// Nothing where --output names a file.
[[nodiscard]] std::optional<RunFolder> run_folder(const Flags& flags);
/// The checkpoint that --output leads to: the file, or the last one of a run directory.
[[nodiscard]] std::string output_checkpoint(const Flags& flags);
/// The checkpoint that a flag which names one leads to: of a run directory that of its best epoch or, where
/// there is none, the last one; anything else is given back as it is.
[[nodiscard]] std::string read_checkpoint_path(const std::string& path);

/// config.json of a run directory. Throws FileError where there is none, and for one that is damaged or
/// newer.
[[nodiscard]] nlohmann::ordered_json read_run_config(const RunFolder& folder);

/// Throws ArgumentError for a folder that cannot become that of this run: a file, one that holds other
/// things, and without --resume and --force one that holds a run; with --resume one of another command.
void check_run_folder(const Flags& flags);

}  // namespace fq::cli
