#include <filesystem>

#include <fmt/format.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arguments.h"
#include "bindings.h"
#include "fakequant/core/error.h"
#include "fakequant/train/data/hdf5_dataset.h"
#include "fakequant/train/data/subset.h"
#include "fakequant/train/ranks/shares.h"
#include "graded.h"
#include "interrupts.h"

namespace fq::python {

std::shared_ptr<const Dataset> to_dataset(nb::handle value, const char* function) {
  if (nb::isinstance<Dataset>(value)) return nb::cast<std::shared_ptr<Dataset>>(value);
  const Call call{function};
  // A tuple is (x, y), any other value is x alone.
  if (PyTuple_Check(value.ptr()) == 0) return std::make_shared<TensorDataset>(call.host(value, "data"));
  if (nb::len(value) != 2)
    throw ArgumentError(fmt::format("[{}] data is a tuple of {}: use (x, y)", function, nb::len(value)));
  return std::make_shared<TensorDataset>(call.host(value[0], "x"), call.host(value[1], "y"));
}

std::shared_ptr<DataLoader> sequential_loader(nb::handle value, std::int64_t batch_size, const char* function,
                                              const Communicator* ranks) {
  return sequential_loader(to_dataset(value, function), batch_size, ranks);
}

std::shared_ptr<DataLoader> sequential_loader(std::shared_ptr<const Dataset> data, std::int64_t batch_size,
                                              const Communicator* ranks) {
  LoaderOptions options;
  options.batch_size = batch_size;
  options.shuffle = false;
  options.prefetch = 0;  // data sets over numpy arrays are read on the calling thread
  if (ranks != nullptr) options = share_of_rank(options, *ranks);
  return std::make_shared<DataLoader>(std::move(data), options);
}

namespace {

using nb::arg, nb::none;
using Shared = std::shared_ptr<Dataset>;  // data sets are never written

/// Returns a data set that is pickled as the call that made it: a file is opened again, arrays are copied.
/// `_call` is the pair (function, arguments) that __reduce__ returns.
template <class... Arguments>
nb::object with_reduce(Shared data, const char* function, Arguments... arguments) {
  nb::object out = nb::cast(std::move(data));
  const nb::object made_by = nb::module_::import_("fakequant._fakequant").attr(function);
  out.attr("_call") = nb::make_tuple(made_by, nb::make_tuple(arguments...));
  return out;
}

nb::object open(const std::string& path, const std::string& split, bool labels) {
  Hdf5DatasetOptions options;
  // Each rank reads only its share of the rows.
  options.by_rows = launched().ranks > 1;
  options.split = split;
  options.labels = labels;
  options.label_type = LabelType::integers;
  auto data = unlocked([&] { return Shared(std::make_shared<Hdf5Dataset>(path, options)); });
  // The process that unpickles may have another current folder.
  return with_reduce(std::move(data), "dataset", std::filesystem::absolute(path).string(), split, labels);
}

nb::tuple read(const Dataset& data, const std::vector<std::int64_t>& rows) {
  const Batch batch = unlocked([&] { return data.read(rows); });
  return nb::make_tuple(Call{"read"}.give(batch.x), Call{"read"}.give(batch.y));
}

nb::tuple shape_tuple(const Dataset& data) {
  return nb::tuple(
      nb::cast(std::vector<std::int64_t>(data.sample_shape().begin(), data.sample_shape().end())));
}

nb::object tensors(nb::object x, nb::object y) {
  const Call call{"TensorDataset"};
  auto data = std::make_shared<TensorDataset>(call.host(x, "x"), call.host(y, "y"));
  return with_reduce(std::move(data), "TensorDataset", x, y);
}

nb::object subset(nb::object data, const std::vector<std::int64_t>& rows) {
  auto some = std::make_shared<Subset>(nb::cast<Shared>(data), rows);
  const auto numbers = Call{"Subset"}.give(Tensor::from(rows, {std::ssize(rows)}));
  return with_reduce(std::move(some), "Subset", data, numbers);
}

nb::object data_set(nb::object given) {
  if (nb::isinstance<Dataset>(given)) return given;
  // nanobind holds pointers to non-const objects. No function of the class writes.
  auto data = std::const_pointer_cast<Dataset>(to_dataset(given, "data_of"));
  return with_reduce(std::move(data), "data_of", given);
}

nb::object few_samples(nb::object data, std::int64_t count, std::uint64_t seed) {
  auto some = std::const_pointer_cast<Dataset>(some_samples(nb::cast<Shared>(data), count, seed));
  return with_reduce(std::move(some), "some_samples", data, count, seed);
}

}  // namespace

void bind_datasets(nb::module_& m) {
  nb::class_<Dataset>(
      m, "Dataset",
      "Samples by index, with or without labels. data[3] returns (x, y), the arrays of one sample; "
      "data[:100] returns a data set of the first 100 samples; iteration yields (x, y) of each sample.",
      // Allows the attribute `_call`.
      nb::dynamic_attr())
      .def("__len__", &Dataset::size)
      .def_prop_ro("sample_shape", &shape_tuple, "Shape of one sample, without the axis of samples.")
      .def_prop_ro("classes", &Dataset::classes,
                   "Number of classes. 0 if the labels are not one class for each sample.")
      .def_prop_ro("class_names", &Dataset::class_names,
                   "Class names in the order of the labels. Empty without names.")
      .def("read", &read, arg("rows"),
           "Returns (x, y) of the samples at these positions. y is None without labels.")
      .def("__reduce__", [](nb::object self) { return self.attr("_call"); });
  m.def("dataset", &open, arg("path"), arg("split") = "train", arg("labels") = true,
        "Opens the group `split` of a data set file (HDF5). With labels=False only samples are read. Raises "
        "FileError for a damaged file and a file of another kind.");
  m.def("TensorDataset", &tensors, arg("x"), arg("y") = none(),
        "Returns a data set over arrays, without a copy. x is float32, or int64 for token ids, [N, ..], as "
        "the network reads it. y is int64 [N], a class for each sample, or another target of the loss.");
  m.def("Subset", &subset, arg("data"), arg("rows"),
        "Returns the samples of a data set at positions in ascending order.");
  m.def("data_of", &data_set, arg("data"),
        "Returns the data set of an argument of Model's functions: a data set, (x, y), or x.");
  m.def("some_samples", &few_samples, arg("data"), arg("count"), arg("seed") = 0,
        "Returns `count` samples at random positions, in the order of the data set. The same `seed` gives "
        "the same samples.");
}

}  // namespace fq::python
