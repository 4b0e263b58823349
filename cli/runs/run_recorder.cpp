#include "fakequant/cli/runs/run_recorder.h"

#include <algorithm>
#include <filesystem>

#include "fakequant/cli/runs/run_files.h"
#include "fakequant/cli/runs/run_measurements.h"
#include "fakequant/cli/system/streams.h"

namespace fq::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr std::int64_t kLinesOfSteps = 1000;  // approximate number of step lines per run
constexpr double kShareOfTime = 0.05;         // largest share of the time for writing pages
constexpr double kLeastBetween = 2;           // seconds between two pages

}  // namespace

struct RunRecorder::Body {
  RunFiles files;
  RecordedRun recorded;
  TrainingReport& report;
  // `examined` is the step of the last confusion matrix. With `averages` (--ema), checkpoints have other
  // weights than the model during training.
  std::int64_t step_lines_every = 1, step = 0, examined = -1;
  bool averages, ended = false;
  html::RunPage page;
  Tensor inputs;  // samples for the measurement of clipping
  std::optional<Profiler> profiler;
  std::optional<ProfilerScope> profiling;
  double seconds_left = 0, page_seconds = 0;
  Stopwatch since_page;

  Body(RunFolder where, const TrainingOptions& options, RecordedRun what, TrainingReport& training_report)
      : files(std::move(where), options),
        recorded(std::move(what)),
        report(training_report),
        averages(options.average_decay > 0),
        inputs(some_inputs(*recorded.run)) {
    // A profiler prevents the replay of captured steps on a GPU.
    if (options.profile || device_of_run().is_cuda()) return;
    profiler.emplace(0);
    profiling.emplace(*profiler);
  }

  [[nodiscard]] Device device_of_run() const { return recorded.run->network.module().device(); }

  void on_step(const StepReport& now) {
    step = now.step;
    seconds_left = now.seconds_left;
    // Long runs record every n-th step, so that the file and the curves stay small.
    step_lines_every = std::max<std::int64_t>(1, now.steps / kLinesOfSteps);
    if (now.step % step_lines_every != 0) return;
    ordered_json line{{"event", "step"}, {"step", now.step}, {"epoch", now.epoch + 1}, {"loss", now.loss}};
    if (report.has_accuracy()) line["accuracy"] = 100 * now.accuracy;
    line.update({{"lr", now.learning_rate},
                 {"images_per_second", now.images_per_second},
                 {"loader_share", now.loader_share}});
    files.add_numbers(std::move(line));
    // The wait grows with the time that a page takes, which limits the cost to kShareOfTime of the run.
    if (since_page.seconds() > std::max(kLeastBetween, page_seconds / kShareOfTime))
      write_page(seconds_left, false);
  }

  void on_epoch(const EpochReport& epoch) {
    // Called after the report's own callback, which made the line of this epoch.
    ordered_json line = report.last();
    line["step"] = step;
    if (const auto quantizers = quantizer_ranges(recorded.run->network.module(), inputs); !quantizers.empty())
      line["quantizers"] = quantizers;
    if (profiler) line["phases"] = phase_times(profiler->profile());
    files.add_numbers(std::move(line));
    // On disk before the checkpoint of the epoch is kept: a resumed run continues from both.
    files.sync();
    files.keep_epoch(epoch.epoch + 1);
    // With --ema the model has the averages at the end only, so it is examined there.
    if (since_page.seconds() > page_seconds / kShareOfTime) write_page(seconds_left, !averages);
  }

  void examine() {
    // `finish` may follow the last epoch at the same step.
    if (recorded.rows.empty() || examined == step) return;
    examined = step;
    auto found = class_examples(recorded.run->network, recorded.run->data, recorded.rows, recorded.batch);
    page.shown = std::move(found.shown);
    ordered_json line{{"event", "classes"}, {"step", step}, {"of", recorded.of}};
    line.update(found.counts);
    files.add(std::move(line));
  }

  void write_page(double left, bool with_classes) {
    const Stopwatch watch;
    if (with_classes) examine();
    page.record = &files.record();
    page.seconds_left = left;
    files.write_page(html::run_html(page));
    page_seconds = watch.seconds();
    since_page = {};
  }
};

RunRecorder::RunRecorder(RunFolder folder, const TrainingOptions& options, RecordedRun recorded,
                         TrainingReport& report)
    : body_(std::make_unique<Body>(std::move(folder), options, std::move(recorded), report)) {}
// An exception left the run: the record gets its end, unless this fails too.
RunRecorder::~RunRecorder() {
  try {
    if (body_->files.began() && !body_->ended) finish("failed: see log.txt", ordered_json::object());
  } catch (const std::exception&) {  // the original error may be a full disk
  }
}

TrainerCallbacks RunRecorder::callbacks() {
  TrainerCallbacks inner = body_->report.callbacks();
  return {.on_step =
              [this, inner_callback = inner.on_step](const StepReport& step) {
                inner_callback(step);
                body_->on_step(step);
              },
          .on_epoch =
              [this, inner_callback = inner.on_epoch](const EpochReport& epoch) {
                inner_callback(epoch);
                body_->on_epoch(epoch);
              },
          .on_checkpoint = {}};
}

void RunRecorder::begin(ordered_json config, std::int64_t step) {
  Body& run = *body_;
  run.files.begin(config, step);
  run.step = step;
  // The path ends with a slash, so `filename` alone would be empty.
  run.page.title = fs::path(run.files.folder().path).parent_path().filename().string();
  if (run.page.title.empty()) run.page.title = run.files.folder().path;
  run.page.config = std::move(config);
  run.files.add(
      {{"event", "start"}, {"step", step}, {"time", time_now()}, {"command", run.page.config["command"]}});
  run.write_page(0, false);
}

void RunRecorder::finish(const std::string& state, const ordered_json& result) {
  Body& run = *body_;
  run.ended = true;
  if (state == "done") run.examine();
  run.files.add(
      {{"event", "end"}, {"step", run.step}, {"time", time_now()}, {"state", state}, {"result", result}});
  run.files.sync();
  // -1: the run has ended, the page does not reload.
  run.write_page(-1, false);
}

}  // namespace fq::cli
