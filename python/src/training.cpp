#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "data.h"
#include "fakequant/train/calibration/calibrate.h"
#include "fakequant/train/data/hdf5_dataset.h"
#include "fakequant/train/loop/trainer.h"
#include "graded.h"
#include "identity.h"

namespace fq::python {

std::shared_ptr<const Dataset> data_of(nb::handle value, const char* function) {
  if (nb::isinstance<Dataset>(value)) return nb::cast<std::shared_ptr<Dataset>>(value);
  const Call call{function};
  if (PyTuple_Check(value.ptr()) == 0) return std::make_shared<TensorDataset>(call.tensor(value, "data"));
  if (nb::len(value) != 2) throw nb::value_error("data is a tuple of other than two arrays: give (x, y)");
  return std::make_shared<TensorDataset>(call.tensor(value[0], "x"), call.tensor(value[1], "y"));
}

std::shared_ptr<DataLoader> in_order(nb::handle value, std::int64_t batch_size, const char* function) {
  LoaderOptions options;
  options.batch_size = batch_size;
  options.shuffle = false;
  options.prefetch = 0;  // data sets of numpy's memory are read on the thread that asks
  return std::make_shared<DataLoader>(data_of(value, function), options);
}

namespace {

using nb::arg, nb::none;

/// Thrown out of a run where Python has a signal: KeyboardInterrupt after the batch.
void check_signals() {
  const nb::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

nb::dict evaluation_of(const Evaluation& found) {
  nb::dict out;
  out["loss"] = found.loss;
  out["accuracy"] = found.accuracy;
  out["count"] = found.count;
  out["correct"] = found.correct;
  for (const auto& [name, value] : found.metrics) out[name.c_str()] = value;
  return out;
}

nb::dict epoch_of(const EpochReport& report) {
  nb::dict out;
  out["epoch"] = report.epoch;
  out["epochs"] = report.epochs;
  out["loss"] = report.loss;
  out["accuracy"] = report.accuracy;
  out["learning_rate"] = report.learning_rate;
  out["best"] = report.best;
  out["seconds"] = report.seconds;
  if (report.validation) out["validation"] = evaluation_of(*report.validation);
  return out;
}

AmaxMode amax_mode(const std::string& name) {
  if (name == "frozen") return AmaxMode::frozen;
  if (name == "running") return AmaxMode::running;
  if (name == "learned") return AmaxMode::learned;
  throw nb::value_error(("amax is '" + name + "': frozen, running and learned are allowed").c_str());
}

nb::list fit(Network& self, nb::object data, std::int64_t epochs, nb::object validation,
             std::int64_t batch_size, double learning_rate, const std::string& optimizer, double weight_decay,
             const std::string& schedule, double clip_norm, double label_smoothing, const std::string& amax,
             std::int64_t patience, bool restore_best, std::uint64_t seed, const std::string& out,
             nb::object on_epoch) {
  TrainerOptions options;
  options.epochs = epochs;
  options.optimizer.kind = optimizer;
  options.optimizer.learning_rate = learning_rate;
  options.optimizer.weight_decay = weight_decay;
  options.schedule.kind = schedule;
  options.clip_norm = clip_norm;
  options.label_smoothing = label_smoothing;
  options.amax = amax_mode(amax);
  options.patience = patience;
  options.restore_best = restore_best;
  options.seed = seed;
  options.out = out;
  options.model = self.identity.dump();
  LoaderOptions loader;
  loader.batch_size = batch_size;
  loader.seed = seed;
  auto batches = std::make_shared<DataLoader>(data_of(data, "fit"), loader);
  std::shared_ptr<DataLoader> held_out;
  if (!validation.is_none()) held_out = in_order(validation, batch_size, "fit");
  nb::list history;
  TrainerCallbacks callbacks;
  callbacks.on_step = [](const StepReport&) { check_signals(); };
  callbacks.on_epoch = [&](const EpochReport& report) {
    const nb::gil_scoped_acquire gil;
    history.append(epoch_of(report));
    if (!on_epoch.is_none()) on_epoch(history[nb::len(history) - 1]);
  };
  const nb::gil_scoped_release free;
  static_cast<void>(Trainer(self.module, batches, options, held_out, callbacks).fit());
  return history;
}

nb::dict calibrate_model(Network& self, nb::object data, const std::string& method, std::int64_t samples,
                         double percentile, std::int64_t batch_size) {
  const auto batches = in_order(data, batch_size, "calibrate");
  CalibrateOptions options;
  options.method = method;
  options.samples = samples;
  options.amax.percentile = percentile;
  const auto report = unlocked([&] { return calibrate(*self.module, *batches, options); });
  nb::dict out;
  out["samples"] = report.samples;
  out["quantizers"] = report.quantizers;
  out["passes"] = report.passes;
  return out;
}

void bind_data(nb::module_& m) {
  nb::class_<Dataset>(m, "Dataset", "Samples by index, with labels or without.")
      .def("__len__", &Dataset::size)
      .def_prop_ro("sample_shape",
                   [](const Dataset& d) {
                     return nb::tuple(nb::cast(
                         std::vector<std::int64_t>(d.sample_shape().begin(), d.sample_shape().end())));
                   })
      .def_prop_ro("classes", &Dataset::classes)
      .def(
          "read",
          [](const Dataset& d, const std::vector<std::int64_t>& rows) {
            const Batch batch = unlocked([&] { return d.read(rows); });
            return nb::make_tuple(Call{"read"}.give(batch.x), Call{"read"}.give(batch.y));
          },
          arg("rows"), "(x, y) of the samples of those numbers; y is None without labels.");
  m.def(
      "dataset",
      [](const std::string& path, const std::string& split, bool labels) {
        Hdf5DatasetOptions options;
        options.split = split;
        options.labels = labels;
        return unlocked(
            [&] { return std::shared_ptr<Dataset>(std::make_shared<Hdf5Dataset>(path, options)); });
      },
      arg("path"), arg("split") = "train", arg("labels") = true, "One group of a data set file (HDF5).");
}

}  // namespace

void bind_training(nb::module_& m) {
  bind_data(m);
  auto model = nb::borrow<nb::class_<Network>>(m.attr("Model"));
  model
      .def("fit", &fit, arg("data"), arg("epochs") = 10, arg("validation") = none(), arg("batch_size") = 64,
           arg("learning_rate") = 1e-3, arg("optimizer") = "adamw", arg("weight_decay") = 0.0,
           arg("schedule") = "constant", arg("clip_norm") = 0.0, arg("label_smoothing") = 0.0,
           arg("amax") = "frozen", arg("patience") = 0, arg("restore_best") = false, arg("seed") = 0,
           arg("out") = "", arg("on_epoch") = none(),
           "Trains on a data set or (x, y); of a quantized model that is quantization-aware training. "
           "Returns a dict for "
           "each epoch. KeyboardInterrupt stops after the batch.")
      .def("calibrate", &calibrate_model, arg("data"), arg("method") = "", arg("samples") = 0,
           arg("percentile") = 99.99, arg("batch_size") = 64,
           "Chooses the ranges of all quantizers from data.")
      .def(
          "evaluate",
          [](Network& self, nb::object data, std::int64_t batch_size) {
            const auto batches = in_order(data, batch_size, "evaluate");
            return evaluation_of(unlocked([&] { return evaluate(*self.module, *batches); }));
          },
          arg("data"), arg("batch_size") = 256,
          "{'loss', 'accuracy', 'count', 'correct'} on a data set or (x, y).")
      .def(
          "predict",
          [](Network& self, nb::object data, std::int64_t batch_size) {
            const auto batches = in_order(data, batch_size, "predict");
            return Call{"predict"}.give(unlocked([&] { return predict(*self.module, *batches); }));
          },
          arg("data"), arg("batch_size") = 256, "The outputs of all samples, in their order.");
}

}  // namespace fq::python
