#include "fakequant/cli/runs/run_folder.h"

#include <filesystem>

#include "fakequant/cli/runs/run_contents.h"
#include "fakequant/cli/system/ranks.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/report/detail/runs/json_shape.h"

namespace fq::cli {
namespace {

namespace fs = std::filesystem;

bool is_folder(const std::string& path) {
  std::error_code none;
  return fs::is_directory(path, none);
}

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

/// Whether a file that the flags name lies in the folder.
bool lies_in(const std::string& file, const RunFolder& folder) {
  std::error_code none;
  const auto inner = fs::weakly_canonical(file, none).string(),
             outer = fs::weakly_canonical(folder.path, none).string();
  return !file.empty() && (inner + "/").starts_with(outer.ends_with('/') ? outer : outer + "/");
}

void check_reads_elsewhere(const RunFolder& folder, const Flags& flags) {
  for (const char* flag : {"checkpoint", "teacher", "data", "model", "init"})
    FQ_CHECK(!flags.knows(flag) || !lies_in(flags.text(flag), folder), flags.command(),
             "--output {} would replace the run that --{} reads from: name another folder", folder.path,
             flag);
}

void check_resumed(const RunFolder& folder, const Flags& flags) {
  if (!holds_run(folder)) {
    FQ_CHECK(is_empty_folder(folder), flags.command(),
             "--resume: {} holds no run but other things: name the folder of a run, or a new one by --output",
             folder.path);
    return;
  }
  const std::string command = read_run_config(folder).value("command", std::string());
  FQ_CHECK(command == flags.command(), flags.command(),
           "{} holds a run of {}: go on by fakequant {} --resume {}", folder.path, command, command,
           folder.path);
}

}  // namespace

std::string RunFolder::kept(std::int64_t epoch) const {
  return file(fmt::format("checkpoints/epoch-{:04}.h5", epoch));
}

bool names_folder(const std::string& path) { return path.ends_with('/') || is_folder(path); }

std::optional<RunFolder> run_folder(const Flags& flags) {
  const std::string out = flags.text("output");
  if (!names_folder(out)) return std::nullopt;
  return RunFolder{out.ends_with('/') ? out : out + "/"};
}

std::string output_checkpoint(const Flags& flags) {
  const auto folder = run_folder(flags);
  return folder ? folder->last() : flags.required("output");
}

std::string read_checkpoint_path(const std::string& path) {
  if (!names_folder(path)) return path;
  const RunFolder folder{path.ends_with('/') ? path : path + "/"};
  std::error_code none;
  if (fs::is_regular_file(folder.best(), none)) return folder.best();
  if (fs::is_regular_file(folder.last(), none)) return folder.last();
  return path;
}

nlohmann::ordered_json read_run_config(const RunFolder& folder) {
  using nlohmann::ordered_json;
  using S = fq::detail::JsonShape;
  static const S shape = S::object({{"command", S::text()},
                                    {"started", S::text()},
                                    {"steps", S::whole()},
                                    {"epochs", S::whole()},
                                    {"parameters", S::number()},
                                    {"given", S::object()},
                                    {"defaults", S::object()},
                                    {"settings", S::object()}});
  const ordered_json config = fq::detail::load_json(folder.config(), "run", shape);
  const auto fail = [&](const std::string& why) {
    throw FileError(folder.config(), "", fmt::format("[run] {}: {}", folder.config(), why));
  };
  if (!config.contains("run_format") || !fq::detail::whole_if<std::int64_t>(config["run_format"]))
    fail("this is no config.json of a run directory of fakequant");
  if (fq::detail::whole_value<std::int64_t>(config["run_format"]) > kRunFormat)
    fail(fmt::format(
        "the run is of a newer version of fakequant, {}: use that one",
        config.contains("fakequant") ? config["fakequant"].dump() : std::string("which it does not name")));
  if (!config.contains("given") || !config["given"].is_object() || !config.contains("defaults") ||
      !config["defaults"].is_object())
    fail("it has no flags: it is damaged");
  return config;
}

void check_run_folder(const Flags& flags) {
  const auto folder = run_folder(flags);
  if (!folder || !is_first_rank()) return;
  std::error_code none;
  const std::string place = without_slash(folder->path);
  FQ_CHECK(!fs::exists(place, none) || is_folder(place), flags.command(),
           "--output {}: {} is a file: leave the slash out to write a checkpoint, or name another folder",
           flags.text("output"), place);
  if (flags.on("resume")) return check_resumed(*folder, flags);
  if (flags.on("force")) return check_reads_elsewhere(*folder, flags);
  FQ_CHECK(!holds_run(*folder), flags.command(),
           "{} holds a run already: go on with it by --resume {}, name another folder, or give --force to "
           "replace it",
           folder->path, folder->path);
  FQ_CHECK(
      is_empty_folder(*folder), flags.command(),
      "{} is a folder that holds other things: name a new one, or give --force to put the run beside them",
      folder->path);
}

}  // namespace fq::cli
