#include <algorithm>
#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/version.h"
#include "fakequant/cli/warnings.h"
#include "fakequant/core/error.h"

namespace fq::cli {
namespace {

int complain(std::string_view message, int status) {
  std::fflush(stdout);
  fmt::print(stderr, "fakequant: {}\n", one_line(std::string(message)));
  return status;
}

void print_help() {
  fmt::print("fakequant <command> [flags]: quantization-aware training on the numbers you deploy\n\n");
  for (const Command& command : commands()) fmt::print("  {:<11} {}\n", command.name, command.summary);
  fmt::print(
      "\n  fakequant <command> --help   every flag with default and unit\n"
      "  fakequant --version          version, engine\n\n"
      "exit status: 0 done, 2 arguments or files, 1 anything else, 130 after Ctrl-C\n");
}

void run_command(const Command& command, const std::vector<std::string>& arguments) {
  const FlagSet set = command.flags();
  if (std::any_of(arguments.begin(), arguments.end(),
                  [](const auto& a) { return a == "--help" || a == "-h"; })) {
    fmt::print("{}", set.help());
    return;
  }
  const Flags flags(set, arguments);
  Output output(flags.on("json"));
  const auto print = [&](const nlohmann::ordered_json& found) {
    nlohmann::ordered_json result{{"event", "result"}, {"command", command.name}};
    result.update(found);
    output.record({}, result);
    output.flush();
  };
  try {
    print(run_checked(command, set, flags, output));
  } catch (const FailedCheck& failed) {
    print(failed.result());
    throw;
  }
}

void dispatch(const std::vector<std::string>& arguments) {
  if (arguments.empty()) throw ArgumentError("[fakequant] no command: see fakequant --help");
  const std::string& first = arguments.front();
  if (first == "--help" || first == "-h" || first == "help") return print_help();
  if (first == "--version") return void(fmt::print("{}\n", version_line()));
  run_command(find_command(first), {arguments.begin() + 1, arguments.end()});
}

void on_interrupt(int) {
  if (stop_requested().exchange(true)) std::_Exit(130);
}

int guarded_main(const std::vector<std::string>& arguments) {
  try {
    dispatch(arguments);
    return std::fflush(stdout) == 0 ? 0 : complain("[fakequant] standard output cannot be written", 1);
  } catch (const Interrupted& error) {
    return complain(error.what(), 130);
  } catch (const ArgumentError& error) {
    return complain(error.what(), 2);
  } catch (const FileError& error) {
    return complain(error.what(), 2);
  } catch (const std::bad_alloc&) {
    return complain("[fakequant] out of memory: use a smaller --batch", 1);
  } catch (const std::exception& error) {
    return complain(error.what(), 1);
  }
}

}  // namespace
}  // namespace fq::cli

int main(int argc, char** argv) {
  std::signal(SIGINT, fq::cli::on_interrupt);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that grows too long is an error like a full disk
  fq::cli::print_warnings();
  return fq::cli::guarded_main({argv + 1, argv + argc});
}
