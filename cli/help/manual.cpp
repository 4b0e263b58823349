#include "fakequant/cli/help/manual.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "fakequant/cli/command.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/atomic_file.h"

namespace fq::cli {
namespace {

/// Escapes dashes and backslashes, and a request character at the beginning of a line.
/// In roff an unescaped "-" is a hyphen, which cannot be copied into a shell.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
  }
  return out.starts_with('.') || out.starts_with('\'') ? "\\&" + out : out;
}

std::string page_name(const std::string& command) {
  std::string out = "fakequant-" + command;
  std::ranges::replace(out, ' ', '-');
  return out;
}

std::string heading(std::string name) {
  std::string upper = name;
  std::ranges::transform(upper, upper.begin(), [](unsigned char c) { return char(std::toupper(c)); });
  return fmt::format(".TH {} 1 \"\" \"fakequant {}\" \"User Commands\"\n", roff(upper), FAKEQUANT_VERSION);
}

template <class Visit>
void visit_options(const FlagSet& set, Visit&& visit) {
  for (const auto& group : set.groups())
    for (const auto& option : group.options()) visit(*option);
}

void put_page(const std::string& folder, const std::string& name, const std::string& text) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw FileError(folder, "", fmt::format("[help] {} cannot be made: {}", folder, error.message()));
  write_file(folder + "/" + name, text);
}

}  // namespace

std::vector<ManualEntry> manual_entries() {
  std::vector<ManualEntry> out;
  const auto add = [&out](const Command& command) {
    out.push_back({std::string(command.name), std::string(command.summary), command.call()->set()});
  };
  for (const Command& command : commands())
    if (command.parts == nullptr)
      add(command);
    else
      for (const Command& part : command.parts()) add(part);
  return out;
}

std::string manual_page(const ManualEntry& entry) {
  const std::string name = page_name(entry.name), help = entry.set.help();
  // The help begins with the line of usage and the line of the summary.
  const std::size_t first = help.find('\n'), second = help.find('\n', first + 1);
  std::string out = heading(name);
  out += fmt::format(".SH NAME\n{} \\- {}\n", roff(name), roff(entry.summary));
  out += fmt::format(".SH SYNOPSIS\n{}\n", roff(help.substr(0, first)));
  out += fmt::format(".SH DESCRIPTION\n{}\n.SH OPTIONS\n", roff(help.substr(first + 1, second - first - 1)));
  // .TP begins a paragraph with a tag: the flag, then its text.
  visit_options(entry.set, [&out](const auto& option) {
    std::string value = option.format_parameter();
    out += fmt::format(".TP\n.B {}\n{}\n", roff(option.format_name() + (value.empty() ? "" : " " + value)),
                       roff(option.description()));
  });
  if (!entry.set.settings_table().empty()) out += ".SH SETTINGS\n";
  for (const Setting& setting : entry.set.settings_table())
    out += fmt::format(".TP\n.B {}\n{}\n", roff(fmt::format("{}={}", setting.key, setting.unit)),
                       roff(setting.help));
  return out + ".SH SEE ALSO\n.BR fakequant (1)\n";
}

std::string manual_overview(const std::vector<ManualEntry>& entries) {
  std::string out = heading("fakequant");
  out +=
      ".SH NAME\nfakequant \\- quantization\\-aware training on the numbers you deploy\n.SH "
      "SYNOPSIS\nfakequant "
      "COMMAND [flags]\n.SH COMMANDS\n";
  for (const auto& entry : entries)
    out += fmt::format(".TP\n.BR {} (1)\n{}\n", roff(page_name(entry.name)), roff(entry.summary));
  return out +
         ".SH EXIT STATUS\n0 done, 2 arguments or files, 1 anything else, 128 and its number after a "
         "signal.\n";
}

void write_manual(const std::string& folder) {
  const auto entries = manual_entries();
  // man, bash, zsh and fish search these folders below a prefix, for example ~/.local/share.
  put_page(folder + "/man/man1", "fakequant.1", manual_overview(entries));
  for (const auto& entry : entries)
    put_page(folder + "/man/man1", page_name(entry.name) + ".1", manual_page(entry));
  put_page(folder + "/bash-completion/completions", "fakequant", bash_completion(entries));
  put_page(folder + "/zsh/site-functions", "_fakequant", zsh_completion());
  put_page(folder + "/fish/vendor_completions.d", "fakequant.fish", fish_completion(entries));
}

namespace {

std::string first_word(const std::string& name) { return name.substr(0, name.find(' ')); }

std::string second_word(const std::string& name) {
  const std::size_t space = name.find(' ');
  return space == std::string::npos ? std::string() : name.substr(space + 1);
}

std::string flag_words(const FlagSet& set) {
  std::string out;
  for (const auto& name : set.names()) out += (out.empty() ? "--" : " --") + name;
  return out;
}

/// Joins the words of the entries in their order, each word once.
std::string joined_once(const std::vector<ManualEntry>& entries, std::string (*word)(const std::string&)) {
  std::set<std::string> known;
  std::string out;
  for (const auto& entry : entries)
    if (const auto text = word(entry.name); !text.empty() && known.insert(text).second)
      out += (out.empty() ? "" : " ") + text;
  return out;
}

/// Escapes a text for single quotes of a shell.
/// A quote ends the string, is escaped alone, and starts the string again.
std::string shell_text(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out;
}

}  // namespace

// `dataset` is the only command of two words. After the command, flags are completed after a dash, else file
// names.
std::string bash_completion(const std::vector<ManualEntry>& entries) {
  std::string out = fmt::format(
      "_fakequant() {{\n"
      "  local word=${{COMP_WORDS[COMP_CWORD]}} command=${{COMP_WORDS[1]}} flags=\n"
      "  COMPREPLY=()\n"
      "  if ((COMP_CWORD == 1)); then\n"
      "    COMPREPLY=($(compgen -W '{} help --help --version' -- \"$word\"))\n"
      "    return\n"
      "  fi\n"
      "  if [[ $command == dataset ]]; then\n"
      "    if ((COMP_CWORD == 2)); then\n"
      "      COMPREPLY=($(compgen -W '{} --help' -- \"$word\"))\n"
      "      return\n"
      "    fi\n"
      "    command=\"dataset ${{COMP_WORDS[2]}}\"\n"
      "  fi\n"
      "  case $command in\n",
      joined_once(entries, first_word), joined_once(entries, second_word));
  for (const auto& entry : entries)
    out += fmt::format("    '{}') flags='{}' ;;\n", entry.name, flag_words(entry.set));
  return out +
         "  esac\n"
         "  if [[ $word == -* ]]; then\n"
         "    COMPREPLY=($(compgen -W \"$flags\" -- \"$word\"))\n"
         "  else\n"
         "    COMPREPLY=($(compgen -f -- \"$word\"))\n"
         "  fi\n"
         "}\n"
         "complete -o filenames -F _fakequant fakequant\n";
}

// zsh reuses the completion of bash, found relative to its own file.
std::string zsh_completion() {
  return "#compdef fakequant\n"
         "autoload -U +X bashcompinit && bashcompinit\n"
         "source \"${${(%):-%x}:A:h}/../../bash-completion/completions/fakequant\"\n";
}

std::string fish_completion(const std::vector<ManualEntry>& entries) {
  std::string out;
  for (const auto& entry : entries) {
    const std::string first = first_word(entry.name), second = second_word(entry.name);
    if (second.empty())
      out += fmt::format("complete -c fakequant -n __fish_use_subcommand -a {} -d '{}'\n", first,
                         shell_text(entry.summary));
    else
      out += fmt::format("complete -c fakequant -n '__fish_seen_subcommand_from {}' -a {} -d '{}'\n", first,
                         second, shell_text(entry.summary));
    for (const auto& group : entry.set.groups())
      for (const auto& option : group.options())
        out += fmt::format("complete -c fakequant -n '__fish_seen_subcommand_from {}' -l {} -d '{}'\n",
                           second.empty() ? first : second, option->long_name(),
                           shell_text(option->description()));
  }
  return out;
}

}  // namespace fq::cli
