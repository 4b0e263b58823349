/// Our side of scripts/bench: times rows on request, so that rounds can be interleaved with another program.
/// fakequant_bench --threads N --exchange FOLDER reads one request per line and replies with one line of
/// JSON,
/// {"error": "..."} on failure:
///   hello                      {"versions": {name: version}}
///   rows                       {"rows": [{"name", "unit", "clock", "python", "own_waiting"}]}
///   prepare ROW                {"units_per_second": f, "checked": bool}; inputs for a Python peer are
///   written run ours|theirs CALLS      {"wall": seconds, "cpu": seconds} for all calls after an untimed one,
///   or {"value": v} check                      {"difference": text}, empty when equal

#include <chrono>
#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include <fmt/format.h>

#include "fakequant/bench/row.h"
#include "fakequant/cli/system/waiting.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/threads.h"

namespace fq::bench {
namespace {

using nlohmann::json;

constexpr const char* kTool = "bench";

json describe(const Row& row) {
  return {{"name", row.name},
          {"unit", row.unit},
          {"clock", row.clock == Clock::cpu ? "cpu" : "wall"},
          {"python", row.python},
          {"own_waiting", row.own_waiting}};
}

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

json measure(const Side& side, std::int64_t calls) {
  if (side.value) return {{"value", side.value()}};
  FQ_CHECK(side.run, kTool, "this row has no such side{}", "");
  side.run();
  const auto wall = std::chrono::steady_clock::now();
  const double cpu = cpu_seconds();
  for (std::int64_t i = 0; i < calls; ++i) side.run();
  const double spent = cpu_seconds() - cpu;
  return {{"wall", std::chrono::duration<double>(std::chrono::steady_clock::now() - wall).count()},
          {"cpu", spent}};
}

class Server {
 public:
  explicit Server(Settings settings) : settings_(std::move(settings)) {}

  json answer(const std::string& request) {
    std::istringstream words(request);
    std::string verb;
    words >> verb;
    if (verb == "hello")
      return {{"versions", {{"fakequant", FAKEQUANT_VERSION}, {"compiler", FAKEQUANT_COMPILER}}}};
    if (verb == "rows") return list();
    if (verb == "prepare") return prepare(words);
    if (verb == "run") return run(words);
    FQ_CHECK(verb == "check", kTool, "'{}' is no request: use hello, rows, prepare, run or check", verb);
    return {{"difference", work_.check ? work_.check() : ""}};
  }

 private:
  static json list() {
    json rows = json::array();
    for (const Row& row : all_rows()) rows.push_back(describe(row));
    return {{"rows", rows}};
  }

  json prepare(std::istream& words) {
    std::string name;
    words >> name;
    for (const Row& row : all_rows()) {
      if (row.name != name) continue;
      work_ = row.make(settings_);
      return {{"units_per_second", work_.units_per_second}, {"checked", static_cast<bool>(work_.check)}};
    }
    throw ArgumentError(fmt::format("[{}] there is no row '{}': see scripts/bench --list", kTool, name));
  }

  json run(std::istream& words) {
    std::string side;
    std::int64_t calls = 0;
    words >> side >> calls;
    FQ_CHECK((side == "ours" || side == "theirs") && calls > 0, kTool,
             "run {} {}: use ours or theirs and a count", side, calls);
    return measure(side == "ours" ? work_.ours : work_.theirs, calls);
  }

  Settings settings_;
  Work work_;
};

Settings parse(int count, char** words) {
  Settings settings;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string option = words[i];
    if (option == "--threads") settings.threads = std::stoi(words[i + 1]);
    if (option == "--exchange") settings.exchange = words[i + 1];
  }
  return settings;
}

int serve(const Settings& settings) {
  detail::set_threads(settings.threads);
  Server server(settings);
  for (std::string request; std::getline(std::cin, request);) {
    json reply;
    try {
      reply = server.answer(request);
    } catch (const std::exception& error) {
      reply = {{"error", error.what()}};
    }
    std::cout << reply.dump() << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace fq::bench

int main(int count, char** words) {
  fq::cli::choose_waiting(words);
  return fq::bench::serve(fq::bench::parse(count, words));
}
