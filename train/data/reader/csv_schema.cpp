#include "fakequant/train/data/reader/csv_schema.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/detail/utf8.h"
#include "fakequant/train/data/reader/csv_fields.h"

namespace fq::detail {
namespace {

bool is_header(const std::vector<std::string>& first, const std::string& choice) {
  if (choice != "auto") return choice == "yes";
  return std::ranges::none_of(first, [](const auto& field) { return field_number(field).has_value(); });
}

}  // namespace

CsvSchema csv_schema(const std::vector<std::string>& first, const CsvOptions& options,
                     const std::string& path) {
  CsvSchema schema;
  schema.has_header = is_header(first, options.header);
  for (std::size_t i = 0; i < first.size(); ++i)
    schema.header.push_back(schema.has_header ? first[i] : std::to_string(i));
  if (!options.label.empty()) schema.label = std::int64_t(csv_column(schema.header, options.label, path));
  std::set<std::size_t> wanted, out, text;
  for (const auto& name : options.columns) wanted.insert(csv_column(schema.header, name, path));
  for (const auto& name : options.one_hot) text.insert(csv_column(schema.header, name, path));
  for (const auto& name : options.drop) out.insert(csv_column(schema.header, name, path));
  for (std::size_t i = 0; i < first.size(); ++i)
    if (std::int64_t(i) != schema.label && !out.contains(i) && (wanted.empty() || wanted.contains(i)))
      schema.features.push_back({i, text.contains(i), {}});
  for (auto& feature : schema.features)
    for (const auto& known : options.known)
      if (const std::string begin = schema.header[feature.column] + "=";
          feature.text && known.starts_with(begin))
        feature.categories.push_back(known.substr(begin.size()));
  FQ_CHECK(!schema.features.empty(), "dataset", "{} has no column left beside the label: it has {}", path,
           fmt::join(schema.header, ", "));
  return schema;
}

CsvSchema csv_schema_like(const CsvSchema& before, const std::vector<std::string>& first,
                          const std::string& path) {
  CsvSchema schema = before;
  const auto moved = [&](std::size_t column) {
    return before.has_header ? csv_column(first, before.header[column], path) : column;
  };
  for (auto& feature : schema.features) feature.column = moved(feature.column);
  if (schema.label >= 0) schema.label = std::int64_t(moved(std::size_t(schema.label)));
  schema.header = before.has_header ? first : before.header;
  if (schema.header.size() != first.size())
    throw FileError(path, "",
                    fmt::format("[dataset] {} has {} columns, the table before it {}", path, first.size(),
                                schema.header.size()));
  return schema;
}

std::size_t csv_column(const std::vector<std::string>& header, const std::string& name,
                       const std::string& path) {
  const auto found = std::ranges::find(header, name);
  FQ_CHECK(found == header.end() || std::ranges::count(header, name) == 1, "dataset",
           "{} has more than one column '{}': name it by its place, from 0", path, name);
  if (found != header.end()) return std::size_t(found - header.begin());
  const auto place = field_number(name);
  const bool is_place =
      place && *place >= 0 && *place < double(header.size()) && *place == std::floor(*place);
  FQ_CHECK(is_place, "dataset", "{} has no column '{}'{}", path, printable(name), did_you_mean(name, header));
  return std::size_t(*place);
}

std::vector<std::string> csv_columns(const std::string& path, const CsvOptions& options) {
  CsvReader reader(path, options.delimiter);
  std::vector<std::string> first;
  if (!reader.next(first)) throw FileError(path, "", fmt::format("[dataset] {} has no records", path));
  CsvOptions all = options;
  all.label.clear();
  return csv_schema(first, all, path).header;
}

}  // namespace fq::detail
