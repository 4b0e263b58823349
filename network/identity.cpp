#include "fakequant/network/identity.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <tuple>

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/network/detail/named_values.h"
#include "fakequant/train/metrics.h"

namespace fq {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kIdentity = "identity";

void check_keys(const json& object, const std::string& place, const std::vector<std::string>& allowed) {
  FQ_CHECK(object.is_object(), kIdentity, "{}: is {}, an object is required", place, object.type_name());
  for (const auto& [key, value] : object.items())
    FQ_CHECK(std::ranges::find(allowed, key) != allowed.end(), kIdentity, "{}: has an unknown key '{}'{}",
             place, key, detail::did_you_mean(key, allowed));
}

/// Returns the member as T, or `fallback` without it. Throws ArgumentError for another type.
template <class T>
T member(const json& object, const char* key, T fallback) {
  if (!object.contains(key)) return fallback;
  try {
    return object.at(key).get<T>();
  } catch (const json::exception& error) {
    throw ArgumentError(fmt::format("[{}] {}: {}", kIdentity, key, error.what()));
  }
}

const json& required(const json& object, const char* key) {
  FQ_CHECK(object.contains(key), kIdentity, "{}: is missing", key);
  return object.at(key);
}

/// Reads a list of numbers, or one number as a list of one.
std::vector<double> numbers(const json& object, const char* key) {
  if (object.contains(key) && object.at(key).is_number()) return {object.at(key).get<double>()};
  return member(object, key, std::vector<double>{});
}

SampleNotes notes_from_json(const json& object) {
  check_keys(object, "inputs", {"columns", "scale", "mean", "std"});
  return {.columns = member(object, "columns", std::vector<std::string>{}),
          .scale = member(object, "scale", 0.0),
          .mean = numbers(object, "mean"),
          .deviation = numbers(object, "std")};
}

json notes_to_json(const SampleNotes& notes) {
  json out = json::object();
  if (!notes.columns.empty()) out["columns"] = notes.columns;
  if (notes.scale > 0) out["scale"] = notes.scale;
  if (!notes.mean.empty()) out["mean"] = notes.mean;
  if (!notes.deviation.empty()) out["std"] = notes.deviation;
  return out;
}

TaskText task_from_json(const json& object) {
  check_keys(object, "task", {"loss", "metrics"});
  TaskText out;
  if (object.contains("loss")) out.loss = member(object, "loss", std::string());
  if (object.contains("metrics")) out.metrics = member(object, "metrics", std::string());
  return out;
}

json task_to_json(const TaskText& task) {
  json out = json::object();
  if (task.loss) out["loss"] = *task.loss;
  if (task.metrics) out["metrics"] = *task.metrics;
  return out;
}

/// Returns the config as text. Throws ArgumentError if its preset is not text, because readers of the
/// identity rely on that.
std::string quantization_from_json(const json& config) {
  if (config.is_null()) return {};
  if (config.is_object()) (void)member(config, "preset", std::string());
  return config.dump();
}

/// Replaces objects of rules by lists.
void list_rules(ordered_json& config) {
  for (const char* key : {"quant_cfg", "rules"}) {
    if (!config.contains(key) || !config[key].is_object()) continue;
    ordered_json list = ordered_json::array();
    for (const auto& [pattern, fields] : config[key].items()) {
      ordered_json entry = key == std::string("rules") ? fields : ordered_json{{pattern, fields}};
      if (key == std::string("rules")) entry["pattern"] = pattern;
      // Later rules override earlier ones, so the rule "default" goes first.
      list.insert(pattern == "default" ? list.begin() : list.end(), std::move(entry));
    }
    config[key] = std::move(list);
  }
}

constexpr double kSame = 1e-4;  // relative: attributes are stored as f32 and with few digits

bool has_scale(const SampleNotes& notes) {
  return notes.scale > 0 || !notes.mean.empty() || !notes.deviation.empty();
}

/// Compares two lists. A list of one number counts for all channels.
bool same_numbers(const std::vector<double>& x, const std::vector<double>& y) {
  if (x.size() != y.size() && x.size() != 1 && y.size() != 1) return false;
  for (std::size_t i = 0; i < std::max(x.size(), y.size()); ++i) {
    const double u = x[x.size() == 1 ? 0 : i], v = y[y.size() == 1 ? 0 : i];
    if (!(std::abs(u - v) <= kSame * std::max(std::abs(u), std::abs(v)))) return false;
  }
  return true;
}

std::string first_numbers(const std::vector<double>& all) {
  return fmt::format("{:.6g}{}",
                     fmt::join(all.begin(), all.begin() + std::min<std::ptrdiff_t>(std::ssize(all), 4), ", "),
                     all.size() > 4 ? ", .." : "");
}

/// Returns scale, mean and deviation of the notes, with default values for missing ones.
std::array<std::pair<const char*, std::vector<double>>, 3> scales(const SampleNotes& notes) {
  const auto given_or = [](const std::vector<double>& given, double standard) {
    return given.empty() ? std::vector{standard} : given;
  };
  return {{{"scale", {notes.scale > 0 ? notes.scale : 1}},
           {"mean", given_or(notes.mean, 0)},
           {"std", given_or(notes.deviation, 1)}}};
}

std::string compare_scales(const SampleNotes& own, const SampleNotes& given, std::string_view function) {
  if (!has_scale(own) || !has_scale(given)) return {};
  const auto here = scales(own), there = scales(given);
  for (std::size_t i = 0; i < here.size(); ++i)
    if (!same_numbers(here[i].second, there[i].second))
      return fmt::format(
          "[{}] the data has a {} of {}, but the network was trained with {}. Make the data again "
          "with the training data as --like; otherwise the network misreads its values",
          function, here[i].first, first_numbers(there[i].second), first_numbers(here[i].second));
  return {};
}

void check_columns(const std::vector<std::string>& own, const std::vector<std::string>& given,
                   std::string_view function) {
  if (own.empty() || given.empty() || own == given) return;
  const auto [a, b] = std::ranges::mismatch(own, given);
  // One list may end before the first difference.
  const auto name = [](const auto& names, auto at) {
    return at == names.end() ? std::string("nothing") : fmt::format("'{}'", detail::one_line_name(*at));
  };
  FQ_CHECK(false, function,
           "column {} of the data is {}, but the network was trained with {}: make the data again with the "
           "training data as --like, or with --columns",
           a - own.begin(), name(given, b), name(own, a));
}

}  // namespace

Identity Identity::from_json(const nlohmann::json& json) {
  check_keys(json, "model",
             {"model", "sample_shape", "classes", "dense", "folded", "quantization", "class_names",
              "tokenizer", "inputs", "task"});
  // Every version writes this key, also for networks that are not folded. A file without it is damaged.
  (void)required(json, "folded");
  const nlohmann::json none = nlohmann::json::object();
  Identity out{.model = ModelSpec::parse(required(json, "model").dump()),
               .sample_shape = detail::whole_values<std::int64_t>(required(json, "sample_shape")),
               .classes = detail::whole_value<std::int64_t>(required(json, "classes")),
               .dense = member(json, "dense", false),
               .folded = member(json, "folded", false),
               .quantization = quantization_from_json(required(json, "quantization")),
               .class_names = member(json, "class_names", std::vector<std::string>{}),
               .tokenizer = member(json, "tokenizer", std::string()),
               .inputs = notes_from_json(json.value("inputs", none)),
               .task = task_from_json(json.value("task", none))};
  FQ_CHECK(out.class_names.empty() || std::ssize(out.class_names) == out.classes, kIdentity,
           "class_names: {} names are given for {} classes", out.class_names.size(), out.classes);
  return out;
}

json Identity::to_json() const {
  json out{{"model", detail::parse_json<json>(model.text())},
           {"sample_shape", sample_shape},
           {"classes", classes},
           {"folded", folded},
           {"quantization", quantized() ? detail::parse_json<json>(quantization) : json()}};
  if (dense) out["dense"] = true;
  if (!class_names.empty()) out["class_names"] = class_names;
  if (!tokenizer.empty()) out["tokenizer"] = tokenizer;
  if (auto notes = notes_to_json(inputs); !notes.empty()) out["inputs"] = std::move(notes);
  if (auto words = task_to_json(task); !words.empty()) out["task"] = std::move(words);
  return out;
}

QuantConfig Identity::config() const {
  FQ_CHECK(quantized(), kIdentity, "quantization: the network has none. Quantize the network first");
  return QuantConfig::from_json(detail::parse_json<ordered_json>(quantization));
}

// The config may be JSON text of the user, which need not be an object with this key.
std::string Identity::preset() const {
  if (!quantized()) return {};
  const json config = detail::parse_json<json>(quantization);
  return config.is_object() ? config.value("preset", std::string()) : std::string();
}

void Identity::set_quantization(ordered_json config) {
  list_rules(config);
  quantization = json(config).dump();
}

std::string check_sample_notes(const SampleNotes& own, const Dataset& data, std::string_view function) {
  check_columns(own.columns, data.sample_notes().columns, function);
  return compare_scales(own, data.sample_notes(), function);
}

std::string take_sample_notes(SampleNotes& own, const Dataset& data, std::string_view function) {
  std::string warning = check_sample_notes(own, data, function);
  const SampleNotes& given = data.sample_notes();
  if (own.columns.empty()) own.columns = given.columns;
  if (!has_scale(own))
    std::tie(own.scale, own.mean, own.deviation) = std::tie(given.scale, given.mean, given.deviation);
  return warning;
}

namespace {

/// Returns the options of a loss.
std::vector<std::string> loss_option_names(const std::string& loss) {
  if (loss == "cross_entropy") return {"weights", "ignore"};
  if (loss == "bce") return {"positive"};
  if (loss == "focal") return {"alpha", "gamma"};
  if (loss == "dice") return {"smooth"};
  if (loss == "ctc") return {"blank", "ignore", "zero_infinity"};
  if (loss == "huber") return {"delta"};
  return {};
}

/// Returns a weight per class: number of samples / (classes * samples of the class), or 0 for a class
/// without samples.
std::vector<double> balanced_weights(const Dataset& data, std::int64_t classes) {
  std::vector<double> counts(static_cast<std::size_t>(classes), 0.0);
  const auto labels = data.labels().to(DType::i64).to_vector<std::int64_t>();
  double all = 0;
  for (const auto label : labels) {
    if (label < 0 || label >= classes) continue;
    ++counts[static_cast<std::size_t>(label)];
    ++all;
  }
  for (double& count : counts) count = count == 0 ? 0 : all / (static_cast<double>(classes) * count);
  return counts;
}

/// Returns the shape of one label.
Shape label_shape(const Dataset& data) {
  const Tensor y = data.labels();
  return y.defined() ? Shape(y.shape().begin() + 1, y.shape().end()) : Shape{};
}

bool integers(const Dataset& data) {
  const Tensor y = data.labels();
  return y.defined() && !is_floating(y.dtype());
}

/// Returns the number of classes of dense integer labels: the number of class names, or the largest label
/// plus 1.
std::int64_t dense_classes(const Task& task, const Dataset& data) {
  if (!data.class_names().empty()) return static_cast<std::int64_t>(data.class_names().size());
  std::int64_t most = 0;
  for (const auto label : data.labels().to(DType::i64).to_vector<std::int64_t>())
    if (label != task.loss.ignore_index.value_or(-100)) most = std::max(most, label);
  return most + 1;
}

bool yes_or_no(const Task& task) {
  return task.loss.kind == "bce" || task.loss.kind == "focal" || task.loss.kind == "dice";
}

/// Returns the metric names, with the index of the blank if it is not class 0.
std::vector<std::string> sequence_metrics(const Task& task) {
  std::vector<std::string> names =
      task.metrics.empty() ? std::vector<std::string>{"ler", "exact"} : task.metrics;
  for (auto& name : names)
    if (task.loss.blank != 0 && (name == "ler" || name == "exact")) name += std::to_string(task.loss.blank);
  return names;
}

}  // namespace

bool Task::standard() const {
  return takes_classes(loss) && loss.class_weights.empty() && !balanced && !loss.ignore_index;
}

bool Task::sequences() const { return loss.kind == "ctc"; }

LabelType Task::labels() const {
  return takes_classes(loss) || sequences() ? LabelType::integers : LabelType::numbers;
}

Task parse_task(const TaskText& text, const std::string& function) {
  const std::string loss = text.loss.value_or(""), metrics = text.metrics.value_or("");
  const detail::NamedValues given(function, "loss", loss.empty() ? loss_kinds().front() : loss, loss_kinds(),
                                  loss_option_names);
  Task task;
  LossOptions& options = task.loss;
  options.kind = given.name();
  task.balanced = given.text("weights") == "balanced";
  if (!task.balanced) options.class_weights = given.numbers("weights");
  if (given.has("ignore")) options.ignore_index = given.whole("ignore", 0);
  options.positive_weight = given.number("positive", options.positive_weight);
  options.alpha = given.number("alpha", options.alpha);
  options.gamma = given.number("gamma", options.gamma);
  options.delta = given.number("delta", options.delta);
  options.smooth = given.number("smooth", options.smooth);
  options.blank = given.whole("blank", options.blank);
  options.zero_infinity = given.on("zero_infinity");
  // Builds the loss and the metrics once, so that options out of range fail here, before a run starts.
  (void)make_loss(options);
  if (metrics.empty()) return task;
  task.metrics = detail::split_parts(metrics, ',');
  for (const auto& name : task.metrics) (void)make_metric(name);
  return task;
}

bool one_class_each(const Task& task, const Dataset& data) {
  return takes_classes(task.loss) && label_shape(data).empty();
}

Loss task_loss(const Task& task, const Dataset& data, double label_smoothing) {
  // An empty loss is plain cross entropy, which the Trainer has built in.
  if (task.standard() && one_class_each(task, data)) return {};
  LossOptions options = task.loss;
  FQ_CHECK(label_smoothing == 0 || takes_classes(options), "train",
           "--label-smoothing is for --loss cross_entropy");
  options.label_smoothing = label_smoothing;
  if (task.balanced) options.class_weights = balanced_weights(data, task_outputs(task, data));
  return make_loss(options);
}

std::vector<std::string> task_metrics(const Task& task, const Dataset& data) {
  if (task.sequences()) return sequence_metrics(task);
  if (!task.metrics.empty() || one_class_each(task, data)) return task.metrics;
  if (takes_classes(task.loss) && data.token_ids()) return {"bpc", "accuracy"};
  if (takes_classes(task.loss) || task.loss.kind == "dice") return {"iou", "accuracy"};
  if (task.loss.kind == "bce" || task.loss.kind == "focal") return {"f1", "auc", "accuracy"};
  return {"rmse", "mae", "r2"};
}

// Returns the number of outputs by the kind of label: sequences and dense labels count classes, one class per
// sample uses the classes of the file, and numbers use the first axis of a label.
std::int64_t task_outputs(const Task& task, const Dataset& data) {
  const Shape shape = label_shape(data);
  if (task.sequences()) return std::max(dense_classes(task, data), task.loss.blank + 1);
  if (takes_classes(task.loss)) return shape.empty() ? data.classes() : dense_classes(task, data);
  if (data.classes() > 0) return yes_or_no(task) && data.classes() > 2 ? data.classes() : 1;
  if (yes_or_no(task) && integers(data) && shape.size() > 1) return dense_classes(task, data);
  return shape.empty() ? 1 : shape[0];
}

bool dense_labels(const Task& task, const Dataset& data) {
  return task.sequences() || label_shape(data).size() > (takes_classes(task.loss) ? 0 : 1);
}

}  // namespace fq
