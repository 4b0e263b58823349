#include "fakequant/cli/runs/run_recorder.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>

#include <fmt/ranges.h>

#include "fakequant/cli/runs/class_examples.h"
#include "fakequant/cli/runs/event_log.h"
#include "fakequant/cli/runs/transcript.h"
#include "fakequant/cli/system/ranks.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/export/scales.h"
#include "fakequant/layers/modules/detail/evaluation_mode.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/train/data/some_samples.h"

namespace fq::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr std::int64_t kLinesOfSteps = 1000;  // of a run, about
constexpr double kShareOfTime = 0.05;         // that pages may take
constexpr double kLeastBetween = 2;           // seconds between two
constexpr std::int64_t kClipSamples = 64, kMostKept = 1 << 20;

std::vector<std::string> logs_of(const Flags& flags) {
  std::vector<std::string> out;
  const std::string text = flags.text("log");
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

bool logs(const Flags& flags, const std::string& name) {
  const auto all = logs_of(flags);
  return std::ranges::find(all, name) != all.end();
}

/// Kinds of work by what people call them.
std::string phase_of(const std::string& kind) {
  if (kind == "loader") return "waiting for data";
  if (kind == "dX" || kind == "dW" || kind.ends_with(" backward")) return "backward";
  if (kind == "quantize" || kind == "optimizer" || kind == "other") return kind;
  return "forward";
}

ordered_json phases_of(const Profile& profile) {
  ordered_json out = ordered_json::object();
  for (const auto& row : profile.rows) {
    const std::string phase = phase_of(row.kind);
    out[phase] = out.value(phase, 0.0) + row.milliseconds;
  }
  return out;
}

ClipCounts clips_of(Module& model, const Tensor& x) {
  const NoGrad no_grad;
  const fq::detail::EvaluationMode evaluating(model);
  ClipCounter counter(model);
  const RecordScope scope(counter);
  (void)model(Variable(x));
  return counter.counts();
}

ordered_json quantizers_of(Module& model, const Tensor& x) {
  ordered_json out = ordered_json::object();
  const auto of_weights = weight_quantizers(model);
  std::set<std::string> weights;
  for (const auto& entry : named_quantizers(model)) {
    if (of_weights.contains(entry.quantizer)) weights.insert(entry.name);
    const Tensor amax = entry.quantizer->amax();
    if (!entry.quantizer->enabled() || !amax.defined()) continue;
    const auto values = amax.to_vector<float>();
    if (!values.empty()) out[entry.name]["amax"] = *std::ranges::max_element(values);
  }
  if (!x.defined() || !uncalibrated_quantizers(model).empty()) return out;
  for (const auto& [name, clips] : clips_of(model, x))
    if (clips.count > 0 && out.contains(name) && !weights.contains(name))
      out[name]["clipped"] = static_cast<double>(clips.clipped) / static_cast<double>(clips.count);
  return out;
}

Tensor some_inputs(const Run& run) {
  if (!run.network.quantized()) return {};
  DataLoader loader(some_samples(run.data, kClipSamples, 0), {.batch_size = kClipSamples, .shuffle = false});
  const auto batch = loader.next();
  return batch ? batch->x.to(run.network.module->device()) : Tensor();
}

/// A link to the file, which no later checkpoint changes, or a copy where the file system has no links.
void keep_copy(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::remove(to, error);
  fs::create_hard_link(from, to, error);
  if (error) write_file(to, read_file(from, std::int64_t{1} << 40));
}

}  // namespace

struct RunRecorder::Body {
  RunFolder folder;
  RecordedRun recorded;
  TrainingReport& report;
  std::int64_t keep, step_lines_every = 1, step = 0, examined = -1;
  bool writes_table, averages, ended = false;
  std::optional<EventLog> events;
  std::optional<LineFile> metrics;
  fq::detail::RunRecord record;
  html::RunPage page;
  Tensor inputs;  // some samples that clipping is looked at on
  std::optional<Profiler> profiler;
  std::optional<ProfilerScope> profiling;
  double seconds_left = 0, page_seconds = 0;
  Stopwatch since_page;

  Body(RunFolder where, const Flags& flags, RecordedRun what, TrainingReport& teller)
      : folder(std::move(where)),
        recorded(std::move(what)),
        report(teller),
        keep(flags.integer("keep", 0, kMostKept)),
        writes_table(logs(flags, "csv")),
        averages(flags.number("ema", 0, 1) > 0),
        inputs(some_inputs(*recorded.run)) {
    if (logs(flags, "tensorboard")) events.emplace(folder.path);
    // A profiler keeps a GPU from replaying captured steps.
    if (flags.given("profile") || device_of_run().is_cuda()) return;
    profiler.emplace(0);
    profiling.emplace(*profiler);
  }

  [[nodiscard]] Device device_of_run() const { return recorded.run->network.module->device(); }

  void add(ordered_json line) {
    metrics->add(line.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
    record.lines.push_back(std::move(line));
  }

  void on_step(const StepReport& now) {
    step = now.step;
    seconds_left = now.seconds_left;
    step_lines_every = std::max<std::int64_t>(1, now.steps / kLinesOfSteps);
    if (now.step % step_lines_every != 0) return;
    ordered_json line{{"event", "step"}, {"step", now.step}, {"epoch", now.epoch + 1}, {"loss", now.loss}};
    if (report.has_accuracy()) line["accuracy"] = 100 * now.accuracy;
    line.update({{"lr", now.learning_rate},
                 {"images_per_second", now.images_per_second},
                 {"loader_share", now.loader_share}});
    if (events) events->add(line);
    add(std::move(line));
    if (since_page.seconds() > std::max(kLeastBetween, page_seconds / kShareOfTime))
      write_page(seconds_left, false);
  }

  void on_epoch(const EpochReport& epoch) {
    ordered_json line = report.last();
    line["step"] = step;
    if (const auto quantizers = quantizers_of(*recorded.run->network.module, inputs); !quantizers.empty())
      line["quantizers"] = quantizers;
    if (profiler) line["phases"] = phases_of(profiler->profile());
    if (events) events->add(line);
    add(std::move(line));
    if (keep > 0) keep_epoch(epoch.epoch + 1);
    if (since_page.seconds() > page_seconds / kShareOfTime) write_page(seconds_left, !averages);
  }

  void keep_epoch(std::int64_t epoch) const {
    keep_copy(folder.last(), folder.kept(epoch));
    std::error_code none;
    fs::remove(folder.kept(epoch - keep), none);
  }

  void examine() {
    if (recorded.rows.empty() || examined == step) return;
    examined = step;
    auto found = class_examples(recorded.run->network, recorded.run->data, recorded.rows, recorded.batch);
    page.shown = std::move(found.shown);
    ordered_json line{{"event", "classes"}, {"step", step}, {"of", recorded.of}};
    line.update(found.counts);
    add(std::move(line));
  }

  void write_page(double left, bool with_classes) {
    const Stopwatch watch;
    if (with_classes) examine();
    page.record = &record;
    page.seconds_left = left;
    write_file(folder.page(), html::run_html(page));
    if (writes_table) write_file(folder.table(), metrics_csv(record));
    page_seconds = watch.seconds();
    since_page = {};
  }
};

void add_run_folder_flags(FlagSet& set) {
  set.value("keep", "EPOCHS",
            "in a run directory, keep the checkpoints of so many epochs beside the last and the best", "0")
      .value("log", "LIST",
             "in a run directory, write the numbers as csv, tensorboard or both too: csv,tensorboard");
}

void check_run_flags(const Flags& flags) {
  (void)flags.integer("keep", 0, kMostKept);
  const std::vector<std::string> known{"csv", "tensorboard"};
  for (const auto& name : logs_of(flags))
    FQ_CHECK(std::ranges::find(known, name) != known.end(), flags.command(), "--log is '{}'{}", name,
             fq::detail::did_you_mean(name, known));
  for (const char* name : {"keep", "log"})
    FQ_CHECK(!flags.given(name) || run_folder(flags), flags.command(),
             "--{} is for a run directory, and --output names a file: name a folder, such as {}/", name,
             fs::path(flags.text("output")).replace_extension().string());
}

void open_run_folder(const Flags& flags) {
  const auto folder = run_folder(flags);
  if (!folder || !is_first_rank()) return;
  std::error_code none;
  if (!flags.on("resume")) clear_run(*folder);
  fs::create_directories(folder->file("checkpoints"), none);
  begin_transcript(folder->log());
}

RunRecorder::RunRecorder(RunFolder folder, const Flags& flags, RecordedRun recorded, TrainingReport& report)
    : body_(std::make_unique<Body>(std::move(folder), flags, std::move(recorded), report)) {}
RunRecorder::~RunRecorder() {
  try {
    if (body_->metrics && !body_->ended) finish("failed: see log.txt", ordered_json::object());
  } catch (const std::exception&) {  // the disk may be what failed
  }
}

TrainerCallbacks RunRecorder::callbacks() {
  TrainerCallbacks told = body_->report.callbacks();
  return {.on_step =
              [this, tell = told.on_step](const StepReport& step) {
                tell(step);
                body_->on_step(step);
              },
          .on_epoch =
              [this, tell = told.on_epoch](const EpochReport& epoch) {
                tell(epoch);
                body_->on_epoch(epoch);
              },
          .on_checkpoint = {}};
}

void RunRecorder::begin(ordered_json config, std::int64_t step) {
  Body& run = *body_;
  std::error_code none;
  if (fs::exists(run.folder.metrics(), none)) {
    run.record = fq::detail::RunRecord::load(run.folder.metrics());
    run.record.forget_after(step);
  }
  write_file(run.folder.metrics(), run.record.text());
  write_file(run.folder.config(), config.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n");
  run.metrics.emplace(run.folder.metrics());
  run.step = step;
  run.page.title = fs::path(run.folder.path).parent_path().filename().string();
  if (run.page.title.empty()) run.page.title = run.folder.path;
  run.page.config = std::move(config);
  if (run.events) run.events->begin(step);
  run.add(
      {{"event", "start"}, {"step", step}, {"time", time_now()}, {"command", run.page.config["command"]}});
  run.write_page(0, false);
}

void RunRecorder::finish(const std::string& state, const ordered_json& result) {
  Body& run = *body_;
  run.ended = true;
  if (state == "done") run.examine();
  run.add({{"event", "end"}, {"step", run.step}, {"time", time_now()}, {"state", state}, {"result", result}});
  run.write_page(-1, false);
}

}  // namespace fq::cli
