#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include <fmt/format.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/help/manual.h"
#include "fakequant/cli/runs/run_config.h"
#include "fakequant/cli/system/machine.h"
#include "fakequant/cli/system/process.h"
#include "fakequant/cli/system/ranks.h"
#include "fakequant/cli/system/streams.h"
#include "fakequant/cli/system/waiting.h"
#include "fakequant/core/detail/check.h"

namespace fq::cli {
namespace {

std::string listed(const std::vector<Command>& commands) {
  std::size_t width = 11;
  for (const Command& command : commands) width = std::max(width, command.name.size());
  std::string text;
  for (const Command& command : commands)
    text += fmt::format("  {:<{}}  {}\n", command.name, width, command.summary);
  return text;
}

void print_help() {
  put("fakequant <command> [flags]: quantization-aware training on the numbers you deploy\n\n" +
      listed(commands()) +
      "\n  fakequant <command> --help   every flag with default and unit\n"
      "  fakequant help settings      settings of train and qat for --set and --config\n"
      "  fakequant --version          version, engine\n"
      "  fakequant --manual FOLDER    write manual pages and completions of shells there\n\n"
      "exit status: 0 done, 2 arguments or files, 1 anything else, 128 + its number after a signal (130: "
      "Ctrl-C)\n");
}

void print_help(const Command& command) {
  put(fmt::format(
      "fakequant {} <command> [flags]: {}\n\n{}\n  fakequant {} <command> --help   every flag with "
      "default and unit\n",
      command.name, command.summary, listed(command.parts()), command.name));
}

void print_settings() {
  const auto call = find_command("qat").call();
  // qat has all settings of train and some of its own.
  const auto of_train = find_command("train").call();
  std::string text =
      "Settings of training: --set KEY=VALUE .., or the object \"training\" of a --config file.\n"
      "Settings with (qat) are for qat alone.\n\n";
  for (const Setting& setting : call->set().settings_table()) {
    text += fmt::format("  {} {}", setting.key, setting.unit);
    if (!setting.standard.empty()) text += fmt::format(" (={})", setting.standard);
    if (of_train->set().find_setting(setting.key) == nullptr) text += " (qat)";
    text += fmt::format("\n      {}\n", setting.help);
  }
  put(text);
}

bool asks_help(const std::string& word) { return word == "--help" || word == "-h" || word == "help"; }

void run_command(const Command& command, const std::vector<std::string>& arguments) {
  const auto call = command.call();
  const FlagSet& set = call->set();
  // Help before parsing, because a line with --help is usually incomplete.
  if (std::any_of(arguments.begin(), arguments.end(),
                  [](const auto& a) { return a == "--help" || a == "-h"; }))
    return put(set.help());
  const Flags flags(set, resumed_arguments(set, arguments));
  if (flags.knows("batch")) advise_smaller_batch();
  FQ_CHECK(!flags.on("quiet") || !flags.on("verbose"), command.name, "--quiet and --verbose: use one");
  Output output(flags.on("json"), flags.on("quiet")     ? Telling::quiet
                                  : flags.on("verbose") ? Telling::verbose
                                                        : Telling::normal);
  // The result is the last JSON object. A failed check prints its result too, and then the error.
  const auto print = [&](const nlohmann::ordered_json& found) {
    nlohmann::ordered_json result{{"event", "result"}, {"command", command.name}};
    result.update(found);
    output.record({}, result);
    output.flush();
  };
  try {
    print(run_checked(*call, flags, output));
  } catch (const FailedCheck& failed) {
    print(failed.result());
    throw;
  }
}

void dispatch(const std::vector<std::string>& arguments) {
  if (arguments.empty()) throw ArgumentError("[fakequant] no command: see fakequant --help");
  const std::string& first = arguments.front();
  if (first == "help" && arguments.size() == 2 && arguments[1] == "settings") return print_settings();
  // "help calibrate" is "calibrate --help".
  if (first == "help" && arguments.size() > 1) {
    std::vector<std::string> help_arguments(arguments.begin() + 1, arguments.end());
    help_arguments.emplace_back("--help");
    return dispatch(help_arguments);
  }
  if (asks_help(first)) return print_help();
  if (first == "--version" || first == "version" || first == "-V" || first == "-v")
    return put(version_line() + "\n");
  if (first == "--manual") {
    FQ_CHECK(arguments.size() == 2, "fakequant", "--manual requires a folder, for example ~/.local/share");
    return write_manual(arguments[1]);
  }
  const Command& command = find_command(first);
  if (!command.parts) return run_command(command, {arguments.begin() + 1, arguments.end()});
  FQ_CHECK(arguments.size() > 1, command.name, "the subcommand is missing. See fakequant {} --help",
           command.name);
  if (asks_help(arguments[1])) return print_help(command);
  const Command& part = find_part(command, arguments[1]);
  const std::vector<std::string> rest(arguments.begin() + 2, arguments.end());
  part.in_python ? convert_data(part, rest) : run_command(part, rest);
}

/// Calls f; on an exception calls end(status, message) while the exception is alive, because its message
/// cannot be copied without memory.
template <class F, class G>
int guarded(F&& f, G&& end) {
  try {
    f();
  } catch (const Interrupted& error) {
    return end(128 + stop_signal(), error.what());
  } catch (const ArgumentError& error) {
    // A parser that runs out of memory may report a malformed text.
    return ran_out_of_memory() ? end(1, out_of_memory_message()) : end(2, error.what());
  } catch (const FileError& error) {
    return end(2, error.what());
  } catch (const std::bad_alloc&) {
    return end(1, out_of_memory_message());
  } catch (const std::exception& error) {
    return end(1, error.what());
  }
  return output_failed() ? end(1, "[fakequant] standard output cannot be written") : end(0, "");
}

int end_alone(int status, std::string_view message) {
  if (status != 0) complain(message);
  return status;
}

int guarded_main(char** begin, char** end) {
  std::vector<std::string> arguments;
  std::optional<Ranks> ranks;
  // Errors before the ranks exist are printed by each process alone. Later ones are printed once for all
  // ranks.
  const int status = guarded(
      [&] {
        print_warnings();
        arguments.assign(begin, end);
        ranks.emplace(arguments);
      },
      end_alone);
  if (status != 0) return status;
  return guarded(
      [&] {
        check_limits();
        dispatch(arguments);
      },
      [&](int ended, std::string_view message) { return ranks->finish(ended, message); });
}

}  // namespace
}  // namespace fq::cli

int main(int argc, char** argv) {
  // `choose_waiting` may start the program again, so it comes before streams and signals are set up.
  fq::cli::end_without_memory();
  fq::cli::choose_waiting(argv);
  fq::cli::open_standard_streams();
  fq::cli::catch_signals();
  return fq::cli::guarded_main(argv + 1, argv + argc);
}
