#include "fakequant/cli/flags/recipe.h"

#include "fakequant/cli/command.h"
#include "reader.h"

void fq::fuzz::read_recipe(const std::string& path) {
  const auto call = cli::find_command("run").call();
  const cli::FlagSet& flags = call->set();
  (void)cli::read_recipe(path, cli::Flags(flags, {path}));
}
