#include "fakequant/cli/engines/engine_run.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include <fmt/format.h>

#include "fakequant/cli/flags/flag_words.h"
#include "fakequant/cli/system/programs.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/core/io/detail/json_text.h"

namespace fq::cli {
namespace {

using nlohmann::ordered_json;

// The report comes from another program, which may be broken or the wrong one. Its size, types and sums are
// checked, so that `verify` never passes a file by mistake.
constexpr std::uintmax_t kLongestReport = 32u << 20;
constexpr std::size_t kShownOfValue = 60;

[[noreturn]] void refuse_report(const std::string& what) {
  throw BackendError(
      fmt::format("[verify] {}, so the comparison has no result. Use a Python 3 that runs fakequant.engines "
                  "(--python or FAKEQUANT_PYTHON)",
                  what));
}

/// One object of a report.
class ReportFields {
 public:
  ReportFields(const ordered_json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object())
      refuse_report(fmt::format("{} is {}, an object is needed", where_, shown(object)));
  }

  [[nodiscard]] const ordered_json& at(const std::string& key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) refuse_report(fmt::format("{} has no '{}'", where_, key));
    return *found;
  }
  [[nodiscard]] ReportFields object(const std::string& key) const { return {at(key), of(key)}; }
  [[nodiscard]] std::int64_t count(const std::string& key, std::int64_t least, std::int64_t most) const {
    const auto& value = at(key);
    const auto whole = fq::detail::whole_if<std::int64_t>(value, least, most);
    if (!whole)
      wrong(key, least == most ? fmt::format("{} is needed", least)
                               : fmt::format("a whole number from {} to {} is needed", least, most));
    return *whole;
  }
  [[nodiscard]] double share(const std::string& key) const {
    // The negated comparison also rejects NaN.
    if (!at(key).is_number() || !(at(key).get<double>() >= 0)) wrong(key, "a number of 0 or more is needed");
    return at(key).get<double>();
  }
  void share_or_null(const std::string& key) const {
    if (!at(key).is_null()) static_cast<void>(share(key));
  }
  [[nodiscard]] bool flag(const std::string& key) const {
    if (!at(key).is_boolean()) wrong(key, "true or false is needed");
    return at(key).get<bool>();
  }
  void text(const std::string& key) const {
    if (!at(key).is_string()) wrong(key, "a text is needed");
  }
  [[nodiscard]] std::set<std::string> texts(const std::string& key) const {
    const auto& value = at(key);
    if (!value.is_array() || !std::ranges::all_of(value, [](const auto& v) { return v.is_string(); }))
      wrong(key, "a list of texts is needed");
    return value.get<std::set<std::string>>();
  }
  void null(const std::string& key) const {
    if (!at(key).is_null()) wrong(key, "null is needed");
  }
  void list(const std::string& key) const {
    if (!at(key).is_array()) wrong(key, "a list is needed");
  }
  [[nodiscard]] const ordered_json& json() const { return object_; }

 private:
  [[nodiscard]] std::string of(const std::string& key) const {
    return fmt::format("'{}' of {}", key, where_);
  }
  [[noreturn]] void wrong(const std::string& key, const std::string& needed) const {
    refuse_report(fmt::format("{} is {}, {}", of(key), shown(at(key)), needed));
  }
  static std::string shown(const ordered_json& value) {
    const std::string text = value.dump(-1, ' ', true, ordered_json::error_handler_t::replace);
    return text.size() <= kShownOfValue ? text : text.substr(0, kShownOfValue) + "..";
  }

  const ordered_json& object_;
  std::string where_;
};

/// Checks the differences from one network. `compared` is the number of codes by quantizer.
void check_differences(const ReportFields& side, std::int64_t logits,
                       const std::map<std::string, std::int64_t>& compared) {
  std::int64_t codes = 0, different = 0;
  for (const auto& [name, count] : compared) codes += count;
  const ReportFields by_quantizer = side.object("different");
  // The sum over quantizers must equal "codes_different", which `count` requires by equal bounds.
  for (const auto& [name, value] : by_quantizer.json().items()) {
    const auto found = compared.find(name);
    if (found == compared.end())
      refuse_report(fmt::format("codes of '{}' differ that were not compared", name));
    different += by_quantizer.count(name, 1, found->second);
  }
  static_cast<void>(side.count("codes_different", different, different));
  static_cast<void>(side.count("logit_bits_different", 0, logits));
  // A sample flips if its predicted class differs. "answers" is the number of predictions.
  static_cast<void>(side.count("flips", 0, side.count("answers", 0, logits)));
  side.share_or_null("max_abs_diff");
  static_cast<void>(side.object("largest_steps"));
}

/// Returns the number of compared codes by quantizer. Only quantizers that the report lists as not compared
/// or not in the file may be left out.
std::map<std::string, std::int64_t> check_compared(const ReportFields& report, const Expected& expected) {
  // Every expected quantizer must be compared or listed as missing. A report that leaves out a quantizer does
  // not count as a comparison.
  const auto absent = report.texts("not_in_file");
  const ReportFields compared = report.object("compared"), missing = report.object("not_compared");
  std::map<std::string, std::int64_t> found;
  for (const auto& [name, codes] : expected.codes) {
    if (compared.json().contains(name))
      found[name] = compared.count(name, codes, codes);
    else if (missing.json().contains(name))
      static_cast<void>(missing.count(name, codes, codes));
    else if (!absent.contains(name))
      refuse_report(fmt::format("the codes of '{}' were not compared", name));
  }
  for (const auto& [name, value] : compared.json().items())
    if (!found.contains(name)) refuse_report(fmt::format("the checkpoint has no quantizer '{}'", name));
  return found;
}

void check_verdict(const ReportFields& report, int status, std::int64_t codes) {
  const double tolerance = report.share("tolerance");
  const bool same = report.flag("same");
  const auto limit = report.share("code_tolerance") * double(codes);
  const auto flips = report.share("flip_tolerance") * report.at("answers").get<double>();
  // The verdict is computed again from the counts and tolerances of the report.
  const bool close = report.at("codes_different").get<double>() <= limit &&
                     report.at("flips").get<double>() <= flips &&
                     (tolerance > 0 || report.at("logit_bits_different") == 0);
  const bool whole = report.at("not_in_file").empty();
  if (same && !(close && whole)) refuse_report("the report says 'same' of counts that differ");
  // Two independent channels, file and exit status, must agree.
  if (same != (status == 0))
    refuse_report(fmt::format("the report says {}, but the exit status was {}",
                              same ? "'same'" : "'not the same'", status));
}

ordered_json parse_report(const std::string& text, const std::string& where) try {
  return fq::detail::parse_json<ordered_json>(text);
} catch (const ordered_json::exception&) {
  refuse_report(fmt::format("{} is not JSON", where));
} catch (const ArgumentError&) {
  refuse_report(fmt::format("{} nests too deep", where));
}

void check_report(const ReportFields& report, int status, const Expected& expected) {
  static_cast<void>(report.count("samples", expected.samples, expected.samples));
  static_cast<void>(report.count("logits", expected.logits, expected.logits));
  const auto compared = check_compared(report, expected);
  std::int64_t codes = 0;
  for (const auto& [name, count] : compared) codes += count;
  static_cast<void>(report.count("codes", codes, codes));
  check_differences(report, expected.logits, compared);
  if (expected.folded.empty())
    report.null("folded");
  else
    check_differences(report.object("folded"), expected.logits, compared);
  for (const char* key : {"alone_logit_bits_different", "exposed_logit_bits_different"})
    static_cast<void>(report.count(key, 0, expected.logits));
  for (const char* key : {"engine", "level"}) report.text(key);
  for (const char* key : {"kernels", "session_options"}) static_cast<void>(report.object(key));
  for (const char* key : {"reasons", "ways"}) static_cast<void>(report.texts(key));
  report.list("float_kernels");
  if (!report.at("first_difference").is_null()) static_cast<void>(report.object("first_difference"));
  check_verdict(report, status, codes);
}

}  // namespace

ordered_json read_engine_report(const std::string& path, const std::string& program, int status,
                                const Expected& expected) {
  const std::string where = "the report of " + program;
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  if (error) refuse_report(fmt::format("{} ended with status {} and wrote no report", program, status));
  if (bytes > kLongestReport)
    refuse_report(fmt::format("{} has {} bytes, at most {} are read", where, bytes, kLongestReport));
  const ordered_json json = parse_report(read_file(path), where);
  check_report(ReportFields(json, where), status, expected);
  return json;
}

namespace {

using nlohmann::ordered_json;

constexpr double kMostSeconds = 1e9;

/// Returns true for engines in ONNX Runtime, which alone has levels and session options.
bool is_onnxruntime(const VerifyEngine& engine) { return engine.home == "ort"; }

std::vector<std::string> command_line(const EngineRun& run, const EngineHome& home, const Expected& expected,
                                      const TemporaryFolder& folder, const std::string& report) {
  const EngineOptions& options = run.options;
  std::vector<std::string> arguments{"--json=" + report, "--folder=" + folder.path()};
  const auto add = [&](const char* name, const auto& value) {
    if (value) arguments.push_back(fmt::format("--{}={}", name, *value));
  };
  add("tolerance", options.tolerance);
  add("code-tolerance", options.code_tolerance);
  add("flip-tolerance", options.flip_tolerance);
  add("threads", run.threads);
  if (is_onnxruntime(run.engine)) {
    add("level", options.level);
    for (const auto& option : session_options(options.session)) arguments.push_back("--session=" + option);
  } else {
    arguments.push_back("--home=" + home.folder);
    if (!expected.layers.empty()) arguments.push_back("--layers=" + expected.layers);
  }
  for (const auto& file : expected.folded) arguments.push_back("--folded=" + file);
  // After "--" a file name that begins with a dash is no option.
  arguments.insert(arguments.end(), {"--", run.model});
  arguments.insert(arguments.end(), expected.files.begin(), expected.files.end());
  return module_words("verify", home.python, std::string(run.engine.module), arguments);
}

}  // namespace

std::vector<std::string> session_options(const std::string& session) {
  auto found = listed_words(session);
  for (const auto& option : found) {
    const auto at = option.find('=');
    FQ_CHECK(at != std::string::npos && at > 0, "verify",
             "--session is '{}': use KEY=VALUE,.., for example session.disable_quant_qdq=1", session);
  }
  return found;
}

void add_engine_flags(FlagSet& set, EngineOptions& options) {
  set.value(options.home.engines, "engines", "FOLDER",
            "folder of engines, which are installed on demand (default: FAKEQUANT_ENGINES, or "
            "fakequant/engines in the user's folder for caches)")
      .choice(
          options.level, "level", "NAME", {"disabled", "basic", "extended", "all"},
          "level of optimisation: disabled, basic, extended or all (default: all; basic for FP8 and 4-bit "
          "activations)")
      .value(options.session, "session", "KEY=VALUE,..",
             "options of the engine's session (default: options that keep the numbers)")
      .value(options.tolerance, "tolerance", "SHARE", {0, 1e6},
             "largest difference of logits, relative to the largest logit; 0: the same bits (default: 0 for "
             "8-bit integers, 0.02 if the engine computes floats between their codes; 1e-6 for floats, 4-bit "
             "weights and weights in blocks; other engines: their documented bound)")
      .value(options.code_tolerance, "code-tolerance", "SHARE", {0, 1},
             "share of codes that may differ (default: 0; 0.001 if the engine computes floats between codes, "
             "and with openvino)")
      .value(options.flip_tolerance, "flip-tolerance", "SHARE", {0, 1},
             "share of samples whose predicted class may differ (default: any that --tolerance allows; 0.001 "
             "if the engine computes floats between codes; openvino and xnnpack 0, llama.cpp 0.001, or 0.002 "
             "without codes)")
      .value(options.timeout, "timeout", "SECONDS", {0, kMostSeconds}, "time limit of the engine; 0: none")
      .value(options.home.python, "python", "FILE",
             "a Python 3 with onnxruntime, onnx and h5py, or the packages of another engine (default: "
             "FAKEQUANT_PYTHON, or python3; other engines are installed)");
}

ordered_json run_engine(const EngineRun& run, const Expected& expected, const TemporaryFolder& folder,
                        Output& output) {
  const EngineHome home = engine_home(run.options.home, "verify", run.engine.home, folder, output);
  // The program writes its report to a file, because engines print to standard output too.
  const std::string report = folder.file("counts.json");
  const ProgramLimits limits{folder.file("output"), folder.file("errors"), run.options.timeout};
  const auto arguments = command_line(run, home, expected, folder, report);
  const ProgramEnd end = run_python("verify", arguments, limits, run.model);
  auto found = read_engine_report(report, arguments[0], end.status, expected);
  std::ifstream lines(limits.output_file);
  for (std::string line; std::getline(lines, line);) output.line(line);
  return found;
}

}  // namespace fq::cli
