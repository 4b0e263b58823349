#include <nlohmann/json.hpp>

#include "fakequant/cli/commands/dataset.h"
#include "fakequant/cli/flags/conversion_flags.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/utf8.h"
#include "fakequant/core/io/detail/file_kind.h"

namespace fq::cli {
namespace {

/// In the single quotes of a shell and, within them, the double ones of Python.
std::string python_text(const std::string& path) {
  std::string out = "\"";
  for (const char c : fq::detail::printable(path)) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\'')
      out += "'\\''";
    else
      out += c;
  }
  return out + '"';
}

}  // namespace

FlagSet from_parquet_flags() {
  FlagSet set("dataset from-parquet",
              "Parquet is not read here: says which line makes a table of it that from-csv reads.",
              "FILE [flags]");
  set.group("File")
      .argument("file", "FILE", "a Parquet file")
      .value("output,o", "NAME", "as the others have it: nothing is written");
  add_plain_flags(set);
  return set;
}

nlohmann::ordered_json from_parquet(const Flags& flags, Output&) {
  const std::string path = flags.required("file");
  const std::string kind = fq::detail::file_kind(path);
  if (kind != "a Parquet file")
    throw FileError(path, "",
                    fmt::format("[dataset from-parquet] {} is {}, not a Parquet file", path,
                                kind.empty() ? "not there, or something else" : kind));
  const std::string table =
      path.ends_with(".parquet") ? path.substr(0, path.size() - 8) + ".csv" : path + ".csv";
  FQ_CHECK(false, flags.command(),
           "Parquet is not read here: run python3 -c 'import pandas; pandas.read_parquet({}).to_csv({}, "
           "index=False)', with pandas and pyarrow, and give {} to fakequant dataset from-csv",
           python_text(path), python_text(table), table);
  return {};
}

}  // namespace fq::cli
