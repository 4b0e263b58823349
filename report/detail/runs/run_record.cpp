#include "fakequant/report/detail/runs/run_record.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/report/detail/runs/json_shape.h"

namespace fq::detail {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kMostRecordBytes = std::int64_t{1} << 30;

/// Returns the shape of the lines of an event: the keys that readers of the record use.
/// Numbers of "phases" and "quantizers" have names that depend on the network, so their objects have no fixed
/// keys.
const JsonShape& line_shape(const std::string& event) {
  using S = JsonShape;
  static const JsonShape line =
      S::object({{"event", S::text(), true},
                 {"step", S::whole(), true},
                 {"best", S::flag()},
                 {"state", S::text()},
                 {"phases", S::uniform_object(S::number())},
                 {"quantizers", S::uniform_object(S::uniform_object(S::number()))}});
  static const JsonShape mistake = S::object({{"row", S::whole(), true},
                                              {"label", S::whole(), true},
                                              {"answer", S::whole(), true},
                                              {"probability", S::number(), true}});
  static const JsonShape classes = S::object({{"step", S::whole(), true},
                                              {"samples", S::whole(), true},
                                              {"of", S::text(), true},
                                              {"names", S::list(S::text()), true},
                                              {"confusion", S::list(S::list(S::whole())), true},
                                              {"worst", S::list(mistake), true}});
  return event == "classes" ? classes : line;
}

[[noreturn]] void fail_record(const std::string& path, std::size_t line, const std::string& why) {
  throw FileError(path, "", fmt::format("[run_record] {}:{}: {}. The file is damaged.", path, line, why));
}

// `number` is the line, from 1, for messages.
ordered_json record_line(std::string_view text, const std::string& path, std::size_t number) try {
  auto line = parse_json<ordered_json>(text);
  if (!line.is_object() || !line.contains("event") || !line["event"].is_string() || !line.contains("step") ||
      !whole_if<std::int64_t>(line["step"]))
    fail_record(path, number, "the line requires an event and a step");
  if (const auto wrong = line_shape(line["event"].get<std::string>()).mismatch(line))
    throw FileError(path, wrong->first, fmt::format("[run_record] {}:{}: {}", path, number, wrong->second));
  return line;
} catch (const ordered_json::exception&) {
  fail_record(path, number, "the line is no JSON");
} catch (const ArgumentError& error) {
  fail_record(path, number, error.what());
}

// Texts and objects have no column.
bool is_number_of_table(const ordered_json& value) { return value.is_number() || value.is_boolean(); }

std::string table_text(const ordered_json& line, const std::string& key) {
  return line.contains(key) && is_number_of_table(line[key]) ? line[key].dump() : std::string();
}

}  // namespace

RunRecord RunRecord::load(const std::string& path) {
  // The limit protects against a huge file; a record has about a thousand step lines.
  const std::string text = read_file(path, kMostRecordBytes);
  RunRecord out;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    const auto line = std::string_view(text).substr(begin, end - begin);
    // A line is complete when its newline is written. After a power failure, blocks of a file may read as
    // zeros.
    if (end == std::string::npos || line.find('\0') != line.npos)
      break;  // cut off by a crash or a power failure
    out.lines.push_back(record_line(line, path, out.lines.size() + 1));
    begin = end + 1;
  }
  return out;
}

std::string RunRecord::text() const {
  std::string out;
  for (const auto& line : lines)
    out += line.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
  return out;
}

void RunRecord::truncate(std::int64_t step) {
  std::erase_if(lines, [step](const auto& line) { return whole_value<std::int64_t>(line["step"]) > step; });
}

const ordered_json* RunRecord::last(std::string_view event) const {
  const auto found = std::find_if(lines.rbegin(), lines.rend(),
                                  [event](const auto& line) { return line["event"] == event; });
  return found == lines.rend() ? nullptr : &*found;
}

double number_field(const ordered_json& line, const std::string& key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? found->get<double>()
                                                   : std::numeric_limits<double>::quiet_NaN();
}

std::string metrics_csv(const RunRecord& record) {
  std::vector<std::string> columns;
  const auto counts = [](const ordered_json& line) {
    return line["event"] == "step" || line["event"] == "epoch";
  };
  for (const auto& line : record.lines)
    if (counts(line))
      for (const auto& [key, value] : line.items())
        if (is_number_of_table(value) && std::ranges::find(columns, key) == columns.end())
          // A column is added at the first line that has its key. Lines without the key have an empty field.
          columns.push_back(key);
  std::string out = "event";
  for (const auto& column : columns) out += "," + column;
  out += "\n";
  for (const auto& line : record.lines) {
    if (!counts(line)) continue;
    out += line["event"].get<std::string>();
    for (const auto& column : columns) out += "," + table_text(line, column);
    out += "\n";
  }
  return out;
}

}  // namespace fq::detail
