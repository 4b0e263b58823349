#include "fakequant/cli/runs/run_config.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "fakequant/cli/command.h"
#include "fakequant/cli/evaluation.h"
#include "fakequant/cli/flags/removed.h"
#include "fakequant/cli/runs/run_folder.h"
#include "fakequant/cli/system/machine.h"
#include "fakequant/cli/system/streams.h"
#include "fakequant/core/backend/cpu/engine/exact.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/threads.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/report/detail/runs/run_record.h"
#include "fakequant/train/loop/checkpoint.h"
#include "fakequant/train/loop/detail/run_inputs.h"

namespace fq::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

/// Returns true for flags of one call of the command, which a run does not record.
bool is_of_call(const std::string& name) {
  for (const char* known :
       {"help", "json", "output", "resume", "force", "quiet", "verbose", "dry-run", "allow-changes"})
    if (name == known) return true;
  return false;
}

// A resumed run may start in another current folder.
std::string whole_path(const std::string& value) {
  std::error_code none;
  return fs::exists(value, none) ? fs::absolute(value, none).lexically_normal().string() : value;
}

ordered_json flag_value(const FlagSet& set, const Flags& flags, const std::string& name) {
  if (set.is_toggle(name)) return flags.on(name);
  const bool names_file =
      std::ranges::find(set.file_flags(), name, &FileFlag::name) != set.file_flags().end();
  // Values stay text, as on the command line, so that `append_flag` can return them unchanged.
  if (!set.is_list(name)) return names_file ? whole_path(flags.text(name)) : flags.text(name);
  ordered_json values = ordered_json::array();
  for (const auto& value : flags.list(name)) values.push_back(names_file ? whole_path(value) : value);
  return values;
}

std::int64_t count_parameters(Module& model) {
  std::int64_t out = 0;
  for (const auto& parameter : model.parameters()) out += parameter.numel();
  return out;
}

ordered_json machine() {
  return {{"processor", processor_name()},
          {"instruction_sets", instruction_sets()},
          {"codes_multiplied_as", cpu::name(cpu::best_exact_type())},
          {"processors", processors()},
          {"threads", fq::detail::threads()}};
}

/// Returns the time of the first start of a run.
/// A resumed run keeps the time of its first start.
std::string began(const Flags& flags) {
  const auto folder = run_folder(flags.text("output"));
  if (!folder || !flags.on("resume") || !holds_run(*folder)) return time_now();
  return read_run_config(*folder).value("started", time_now());
}

/// Adds a flag in the form of the command line. Omits a toggle that is off.
void append_flag(std::vector<std::string>& line, const std::string& name, const ordered_json& value) {
  if (value.is_boolean()) {
    if (value.get<bool>()) line.push_back("--" + name);
  } else if (value.is_array()) {
    line.push_back("--" + name);
    for (const auto& item : value) line.push_back(item.get<std::string>());
  } else {  // an empty text is an optional value that is missing: --profile
    const auto text = value.get<std::string>();
    line.push_back("--" + name + (text.empty() ? "" : "=" + text));
  }
}

/// Values of --set by key.
using Pairs = std::map<std::string, std::string>;

void add_pairs(Pairs& pairs, const ordered_json& values) {
  for (const auto& value : values) {
    const std::string text = value.get<std::string>();
    // A text without "=" gets an empty value, which the parser of the setting rejects.
    pairs.emplace(text.substr(0, text.find('=')), text.substr(std::min(text.find('=') + 1, text.size())));
  }
}

/// Adds a flag of an earlier version that is a setting now. Returns false for any other flag.
bool take_moved(Pairs& pairs, const FlagSet& set, const std::string& name, const ordered_json& value) {
  const MovedFlag* moved = find_moved_flag(set.command(), name);
  if (moved != nullptr) pairs.emplace(std::string(moved->key), moved->setting_text(value));
  return moved != nullptr;
}

/// Adds the recorded settings, except for settings on the command line. Adds a recorded default if it differs
/// from the present default. The checkpoint checks settings without a default.
/// `line` has the values that the command line and this version's defaults give.
void append_settings(std::vector<std::string>& arguments, const Flags& line, const Pairs& given,
                     const Pairs& defaults) {
  for (const auto& [key, text] : given)
    if (!line.given(key)) arguments.push_back(fmt::format("--set={}={}", key, text));
  for (const auto& [key, text] : defaults)
    if (!line.given(key) && !given.contains(key) && !line.text(key).empty() && line.text(key) != text)
      arguments.push_back(fmt::format("--set={}={}", key, text));
}

/// Returns the text of a setting's default in config.json. Throws FileError for a value that is not a text.
std::string setting_of_run(const RunFolder& folder, const std::string& key, const ordered_json& value) {
  if (!value.is_string())
    throw FileError(
        folder.config(), "",
        fmt::format("[run] {}: the setting {} is no text: the file is damaged", folder.config(), key));
  return value.get<std::string>();
}

/// Returns true if the flag was removed and had no effect. Throws FileError if it had one.
bool is_removed(const FlagSet& set, const RunFolder& folder, const std::string& name,
                const ordered_json& value) {
  const auto names = set.names();
  if (std::ranges::find(names, name) != names.end()) return false;
  const RemovedFlag* removed = find_removed_flag(name);
  if (removed == nullptr) return false;
  if (!removed->is_off(value))
    throw FileError(folder.config(), "",
                    fmt::format("[{}] {}: {}", set.command(), folder.config(), removed->message()));
  return true;
}

void check_flag_of_run(const FlagSet& set, const RunFolder& folder, const std::string& name,
                       const ordered_json& value) {
  const auto names = set.names();
  // A recorded flag of another version must not be dropped silently: it may have changed the numbers.
  const bool known = std::ranges::find(names, name) != names.end();
  bool fits = value.is_string();
  if (known && set.is_toggle(name)) fits = value.is_boolean();
  if (known && set.is_list(name))
    fits = value.is_array() && std::ranges::all_of(value, [](const auto& item) { return item.is_string(); });
  if (!known || !fits)
    throw FileError(folder.config(), "",
                    fmt::format("[{}] {}: {} --{}: resume with the fakequant version of the run (this is {})",
                                set.command(), folder.config(),
                                known ? "there is another kind of value for" : "this version has no flag",
                                name, FAKEQUANT_VERSION));
}

/// Returns the position of `--resume` and sets `folder` to its value. Returns the end if no value names a
/// folder.
std::vector<std::string>::iterator find_resumed(std::vector<std::string>& line, std::string& folder) {
  // With --output, a word after --resume is an argument (the checkpoint), not the folder of a run.
  const bool names_output = std::ranges::any_of(
      line, [](const auto& word) { return word.starts_with("-o") || word.starts_with("--output"); });
  for (auto at = line.begin(); at != line.end(); ++at) {
    if (at->starts_with("--resume=")) {
      folder = at->substr(std::string("--resume=").size());
      *at = "--resume";
      return at;
    }
    if (*at != "--resume" || names_output || std::next(at) == line.end()) continue;
    const std::string& next = *std::next(at);
    if (next.starts_with('-')) continue;
    folder = next;
    // "--resume RUN" becomes "--resume", because the flag is a toggle for the parser.
    line.erase(std::next(at));
    return at;
  }
  return line.end();
}

void check_is_run(const FlagSet& set, const std::string& path, const RunFolder& folder) {
  std::error_code none;
  FQ_CHECK(!fs::is_regular_file(path, none), set.command(),
           "--resume {}: {} is a file, no run directory: resume a checkpoint by --resume --output {} and its "
           "flags",
           path, path, path);
  if (!fs::exists(folder.config(), none))
    throw FileError(
        path, "",
        fmt::format("[{}] --resume {}: {}: use the folder of a run, as --output RUN/ wrote it", set.command(),
                    path,
                    fs::is_directory(path, none) ? "this is no run directory, it has no config.json"
                                                 : "there is no such folder"));
}

}  // namespace

ordered_json run_config(const Flags& flags, const Run& run, const TrainerOptions& options,
                        const nlohmann::json& settings) {
  const auto call = find_command(flags.command()).call();
  const FlagSet& set = call->set();
  const auto identity = run.network.identity().to_json();
  ordered_json out{
      {"fakequant", FAKEQUANT_VERSION},
      {"run_format", kRunFormat},
      {"command", flags.command()},
      {"model", run.network.identity().model.name()},
      {"preset", flags.knows("preset") ? flags.text("preset") : ""},
      {"started", began(flags)},
      {"resumed", run.resume ? time_now() : ""},
      {"data", whole_path(flags.text("data"))},
      {"device", flags.text("device")},
      {"seed", options.seed},
      options.steps > 0 ? ordered_json{"steps", options.steps} : ordered_json{"epochs", options.epochs},
      {"samples", run.data->size()},
      {"parameters", count_parameters(run.network.module())}};
  for (const char* key : {"preset", "resumed"})
    if (out[key] == "") out.erase(key);
  out["sample_shape"] = run.data->sample_shape();
  out["ranks"] = options.distributed.ranks ? options.distributed.ranks->size() : 1;
  // Given flags and defaults are recorded separately: a resumed run repeats the given flags, and keeps
  // recorded defaults that a later version changed.
  ordered_json given = ordered_json::object(), defaults = ordered_json::object();
  for (const auto& name : set.names()) {
    if (is_of_call(name) || !flags.has(name)) continue;
    const bool is_given = set.is_toggle(name) ? flags.on(name) : flags.given(name);
    (is_given ? given : defaults)[name] = flag_value(set, flags, name);
  }
  for (const Setting& setting : set.settings_table())
    if (!flags.given(setting.key) && !setting.standard.empty()) defaults[setting.key] = setting.standard;
  out["given"] = std::move(given);
  out["defaults"] = std::move(defaults);
  out["settings"] = settings;
  out["machine"] = machine();
  out["quantization"] = identity.at("quantization");
  return out;
}

std::vector<std::string> resumed_arguments(const FlagSet& set, std::vector<std::string> arguments) {
  if (!set.is_toggle("allow-changes")) return arguments;  // the command has no run directories
  std::string path;
  if (find_resumed(arguments, path) == arguments.end()) return arguments;
  FQ_CHECK(!path.empty(), set.command(), "--resume= names no folder: use the folder of a run");
  const RunFolder folder{path.ends_with('/') ? path : path + "/"};
  check_is_run(set, path, folder);
  const ordered_json config = read_run_config(folder);
  const std::string command = config.value("command", std::string());
  FQ_CHECK(command == set.command(), set.command(),
           "{} holds a run of {}: resume it by fakequant {} --resume {}", folder.path, command, command,
           folder.path);
  // `line` has the flags of this call, `plain` the defaults of this version.
  const Flags line(set, arguments);
  const Flags plain(set, {});
  // A new length in steps replaces a recorded one in epochs, and the reverse.
  const bool has_length = line.given("epochs") || line.given("steps");
  Pairs given, defaults;
  for (const auto& [name, value] : config["given"].items()) {
    if (is_removed(set, folder, name, value) || take_moved(given, set, name, value)) continue;
    check_flag_of_run(set, folder, name, value);
    if (has_length && (name == "epochs" || name == "steps")) continue;
    if (name == "set")
      add_pairs(given, value);
    else if (!line.given(name) && !(set.is_toggle(name) && line.on(name)))
      append_flag(arguments, name, value);
  }
  for (const auto& [name, value] : config["defaults"].items()) {
    if (is_removed(set, folder, name, value) || take_moved(defaults, set, name, value)) continue;
    if (set.find_setting(name) != nullptr) {
      defaults.emplace(name, setting_of_run(folder, name, value));
      continue;
    }
    check_flag_of_run(set, folder, name, value);
    // A default that this version changed is passed on with its recorded value, so that the run keeps its
    // numbers.
    const ordered_json standard = flag_value(set, plain, name);
    if (!line.given(name) && !set.is_toggle(name) && standard != "" && standard != value)
      append_flag(arguments, name, value);
  }
  append_settings(arguments, line, given, defaults);
  if (!line.given("output")) arguments.push_back("--output=" + folder.path);
  return arguments;
}

namespace {

/// Returns true for {"epochs": 40} and {"steps": 500}. The flags --steps and --epochs have the same bounds.
bool is_length(const nlohmann::json& value) {
  if (!value.is_object() || value.size() != 1) return false;
  const bool by_steps = value.contains("steps");
  if (!(by_steps || value.contains("epochs")) || !value.front().is_number_integer()) return false;
  return value.front() >= 1 && value.front() <= (by_steps ? kManySteps : kManyEpochs);
}

/// Returns the planned length of a run, from its directory (written at its last start) or else from its
/// checkpoint. Returns an empty object if both lack it.
/// The checkpoint of a run directory stores a length too. The directory has priority, because a resumed run
/// with another --epochs updates it at its start.
nlohmann::json planned_length(const Run& run, const TrainingOptions& given, const StateDict& saved) {
  const auto checked = [](nlohmann::json length, const std::string& path) {
    if (!is_length(length))
      throw FileError(path, "", fmt::format("[resume] the length of the run in {} is damaged", path));
    return length;
  };
  if (const auto folder = run_folder(given.output); folder && holds_run(*folder)) {
    const auto config = read_run_config(*folder);
    for (const char* unit : {"steps", "epochs"})
      if (config.contains(unit)) return checked({{unit, config[unit]}}, folder->config());
  }
  if (saved.has_attribute("progress/length")) return checked(saved.attribute("progress/length"), run.out);
  return nlohmann::json::object();
}

}  // namespace

std::int64_t saved_step(const StateDict& saved) {
  return saved.has_attribute("progress/step")
             ? fq::detail::whole_value<std::int64_t>(saved.attribute("progress/step"))
             : 0;
}

StateDict checkpoint_to_resume(const Run& run, const TrainingOptions& given, const TrainerOptions& options,
                               const nlohmann::json& settings) {
  StateDict saved = load_checkpoint(run.out);
  if (!given.allow_changes || !has_training_state(saved)) return saved;
  if (saved.has_attribute("progress/settings"))
    fq::detail::check_removed_settings(saved.attribute("progress/settings"), run.out);
  // The Trainer compares these settings with its own. Replacing them permits the changes.
  saved.set_attribute("progress/settings", settings);
  for (const char* seed : {"progress/seed", "progress/loader/seed"})
    if (saved.has_attribute(seed)) saved.set_attribute(seed, options.seed);
  return saved;
}

void take_length(const Run& run, const TrainingOptions& given, const StateDict& saved,
                 TrainerOptions& options) {
  if (given.epochs || given.steps) return;
  const auto length = planned_length(run, given, saved);
  options.steps = fq::detail::whole_or(length, "steps", options.steps);
  options.epochs = fq::detail::whole_or(length, "epochs", options.epochs);
}

void check_length(const Run& run, const TrainingOptions& given, const TrainerOptions& options,
                  const StateDict& saved) {
  const bool by_steps = options.steps > 0;
  const char* unit = by_steps ? "steps" : "epochs";
  const std::int64_t wanted = by_steps ? options.steps : options.epochs;
  const char* key = by_steps ? "progress/step" : "progress/epoch";
  const std::int64_t done =
      saved.has_attribute(key) ? fq::detail::whole_value<std::int64_t>(saved.attribute(key)) : 0;
  FQ_CHECK(wanted >= done, given.command, "--{} is {}, and {} has completed {}: use at least this number",
           unit, wanted, run.out, done);
  if (given.allow_changes) return;
  const auto there = fq::detail::whole_or<std::int64_t>(planned_length(run, given, saved), unit, 0);
  // The schedule depends on the length, so a shorter run would have had other learning rates from the start.
  FQ_CHECK(wanted >= there, given.command,
           "--{} is {}, and the run was planned for {}. Use at least this number, or --allow-changes", unit,
           wanted, there);
}

nlohmann::ordered_json finished_result(Run& run, const TrainingOptions& given, const StateDict& saved) {
  const auto folder = run_folder(given.output);
  if (!folder)
    return {{"output", run.out}, {"steps", saved_step(saved)}, {"weight_bytes", weight_bytes(run.network)}};
  // Null makes the caller run the end of the training again, which writes the missing page.
  if (!holds_run(*folder) || was_cut_off(*folder)) return nullptr;
  const auto record = fq::detail::RunRecord::load(folder->metrics());
  const auto* end = record.last("end");
  // The end must be the last line and belong to the step of the checkpoint: a run may have continued after an
  // earlier end.
  const bool is_finished = end != nullptr && end == &record.lines.back() &&
                           (*end)["step"] == saved_step(saved) && end->value("state", "") == "done" &&
                           end->contains("result");
  return is_finished ? (*end)["result"] : nlohmann::ordered_json();
}

}  // namespace fq::cli
