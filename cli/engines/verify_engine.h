#pragma once

/// Table of the engines in which `verify` runs a file, with their flags, files and Python modules.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/network/network.h"

namespace fq::cli {

/// One value of `verify --engine`.
struct VerifyEngine {
  std::string_view name;
  std::string_view suffix;  ///< of the files that it runs
  std::string_view format;  ///< of `export` that writes them
  std::string_view module;  ///< of Python, which runs the file
  std::string_view home;    ///< name of the engine for fakequant.engines.install
  std::string_view target;  ///< what the checkpoint must have been trained for; empty: any
  bool codes;               ///< whether codes of activations can be read in it
  bool layers;              ///< whether linear layers are compared one by one
};

[[nodiscard]] std::span<const VerifyEngine> verify_engines();
/// Returns the names of the engines, then "all".
[[nodiscard]] std::vector<std::string> verify_engine_names();
/// Returns the engine of that name. "all" means the engines that read the suffix of `model`. Throws
/// ArgumentError if there is no such engine.
[[nodiscard]] std::vector<const VerifyEngine*> find_engines(const std::string& name,
                                                            const std::string& model);
/// Throws ArgumentError naming the target to train for.
void check_target(const VerifyEngine& engine, const Network& network);

}  // namespace fq::cli
