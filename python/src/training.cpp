#include <nlohmann/json.hpp>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "data.h"
#include "fakequant/layers/config/quant_config.h"
#include "fakequant/train/calibration/calibrate.h"
#include "fakequant/train/data/hdf5_dataset.h"
#include "fakequant/train/data/some_samples.h"
#include "fakequant/train/ranks/shares.h"
#include "graded.h"
#include "identity.h"
#include "ranks.h"

namespace fq::python {

std::shared_ptr<const Dataset> data_of(nb::handle value, const char* function) {
  if (nb::isinstance<Dataset>(value)) return nb::cast<std::shared_ptr<Dataset>>(value);
  const Call call{function};
  if (PyTuple_Check(value.ptr()) == 0) return std::make_shared<TensorDataset>(call.host(value, "data"));
  if (nb::len(value) != 2) throw nb::value_error("data is a tuple of other than two arrays: give (x, y)");
  return std::make_shared<TensorDataset>(call.host(value[0], "x"), call.host(value[1], "y"));
}

std::shared_ptr<DataLoader> in_order(nb::handle value, std::int64_t batch_size, const char* function,
                                     const Communicator* ranks) {
  return in_order(data_of(value, function), batch_size, ranks);
}

std::shared_ptr<DataLoader> in_order(std::shared_ptr<const Dataset> data, std::int64_t batch_size,
                                     const Communicator* ranks) {
  LoaderOptions options;
  options.batch_size = batch_size;
  options.shuffle = false;
  options.prefetch = 0;  // data sets of numpy's memory are read on the thread that asks
  if (ranks != nullptr) options = share_of_rank(options, *ranks);
  return std::make_shared<DataLoader>(std::move(data), options);
}

namespace {

using nb::arg, nb::none;

bool has_class_of_each_part(const Dataset& data) {
  const Tensor y = data.labels();
  return y.defined() && y.rank() > 1 && !is_floating(y.dtype());
}

}  // namespace

Loss loss_for(const Dataset& data, double label_smoothing) {
  if (!has_class_of_each_part(data)) return {};
  return make_loss({.label_smoothing = label_smoothing});
}

std::vector<std::string> metrics_for(const Dataset& data) {
  if (!has_class_of_each_part(data)) return {};
  return data.token_ids() ? std::vector<std::string>{"bpc", "accuracy"}
                          : std::vector<std::string>{"accuracy"};
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

namespace {

/// As the command does: the config's options and rules, and samples spread over the data.
nb::dict calibrate_model(Network& self, nb::object data, const std::string& method, std::int64_t samples,
                         std::optional<double> percentile, std::int64_t batch_size, nb::object ranks) {
  CalibrateOptions options;
  options.ranks = ranks_of(ranks);
  if (self.quantized()) {
    const QuantConfig config =
        QuantConfig::from_json(nlohmann::ordered_json(self.identity.at("quantization")));
    options.amax = config.amax;
    options.rules = config.calibration;
  }
  options.method = method;
  if (percentile) options.amax.percentile = *percentile;
  auto source = data_of(data, "calibrate");
  if (samples > 0) source = some_samples(std::move(source), samples, 0);
  const auto batches = in_order(std::move(source), batch_size, options.ranks.get());
  const auto report = unlocked([&] {
    check_same_call(options.ranks.get(), "calibrate", *self.module,
                    {{"samples", batches->data().size()}, {"batch_size", batch_size}, {"method", method}});
    return calibrate(*self.module, *batches, options);
  });
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
        options.by_rows = launched().ranks > 1;
        options.split = split;
        options.labels = labels;
        options.label_type = LabelType::integers;
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
      .def("calibrate", &calibrate_model, arg("data"), arg("method") = "", arg("samples") = 0,
           arg("percentile") = none(), arg("batch_size") = 64, arg("ranks") = none(),
           "Chooses the ranges of all quantizers from data: all of it, or so many samples spread over it.")
      .def(
          "evaluate",
          [](Network& self, nb::object data, std::int64_t batch_size, nb::object given) {
            const auto ranks = ranks_of(given);
            const auto samples = data_of(data, "evaluate");
            const auto batches = in_order(samples, batch_size, ranks.get());
            return evaluation_of(unlocked([&] {
              check_same_call(ranks.get(), "evaluate", *self.module,
                              {{"samples", samples->size()}, {"batch_size", batch_size}});
              return evaluate(*self.module, *batches, nullptr, loss_for(*samples), metrics_for(*samples), {},
                              ranks.get());
            }));
          },
          arg("data"), arg("batch_size") = 256, arg("ranks") = none(),
          "{'loss', 'accuracy', 'count', 'correct'} on a data set or (x, y); of tokens with a class for each "
          "'bpc', bits a character, too.")
      .def(
          "predict",
          [](Network& self, nb::object data, std::int64_t batch_size, nb::object given) {
            const auto ranks = ranks_of(given);
            const auto batches = in_order(data, batch_size, "predict", ranks.get());
            return Call{"predict"}.give(unlocked([&] {
              check_same_call(ranks.get(), "predict", *self.module,
                              {{"samples", batches->data().size()}, {"batch_size", batch_size}});
              return predict(*self.module, *batches, ranks.get());
            }));
          },
          arg("data"), arg("batch_size") = 256, arg("ranks") = none(),
          "The outputs of all samples, in their order.");
}

}  // namespace fq::python
