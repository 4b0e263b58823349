#include <set>

#include <fmt/format.h>

#include "fakequant/cli/help/manual.h"

namespace fq::cli {
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

/// Words in the order of the entries, each once.
std::string joined_once(const std::vector<ManualEntry>& entries, std::string (*word)(const std::string&)) {
  std::set<std::string> known;
  std::string out;
  for (const auto& entry : entries)
    if (const auto text = word(entry.name); !text.empty() && known.insert(text).second)
      out += (out.empty() ? "" : " ") + text;
  return out;
}

/// Within single quotes of a shell.
std::string shell_text(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out;
}

}  // namespace

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
