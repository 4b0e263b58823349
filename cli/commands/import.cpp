#include "fakequant/export/onnx/import.h"

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/flags/flag_groups.h"
#include "fakequant/cli/flags/output_kind.h"
#include "fakequant/cli/initial_weights.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/export/transformers/import.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/network/detail/import.h"
#include "fakequant/train/data/detail/npy.h"

namespace fq::cli {
namespace {

using nlohmann::ordered_json;

struct ImportFlags {
  std::string model, output, output_name;
  std::vector<std::string> input_shape, fix_input;
  std::optional<std::string> network, map;
  std::string network_options;
  std::int64_t classes = 0;
  GeneralOptions general;
};

/// Parses "3,32,32".
Shape read_sizes(const std::string& text) {
  Shape shape;
  // The second condition reads the empty part after a comma at the end, which is an error. An empty text is
  // an empty shape.
  for (std::size_t begin = 0; begin < text.size() || (begin > 0 && begin == text.size());) {
    const auto end = std::min(text.find(',', begin), text.size());
    double size = 0;
    FQ_CHECK(read_number(std::string_view(text).substr(begin, end - begin), size) && size >= 1 &&
                 size <= 1 << 30 && size == double(std::int64_t(size)),
             "import", "--input-shape is '{}': use whole numbers and commas, 3,32,32", text);
    shape.push_back(std::int64_t(size));
    begin = end + 1;
  }
  return shape;
}

/// Parses "3,32,32" to the name "", and "ids=128" to the name "ids".
std::map<std::string, Shape> read_shapes(const ImportFlags& flags) {
  std::map<std::string, Shape> shapes;
  for (const auto& given : flags.input_shape) {
    const auto equals = given.rfind('=');
    const std::string name = equals == std::string::npos ? "" : given.substr(0, equals);
    FQ_CHECK(equals != 0, "import", "--input-shape is '{}': use SIZES or NAME=SIZES", given);
    const bool is_new =
        shapes.emplace(name, read_sizes(equals == std::string::npos ? given : given.substr(equals + 1)))
            .second;
    FQ_CHECK(is_new, "import", "--input-shape gives {} twice",
             name.empty() ? "the shape of all inputs" : "'" + name + "'");
  }
  return shapes;
}

/// Returns the shape for a network with one input.
Shape read_shape(const ImportFlags& flags) {
  const auto shapes = read_shapes(flags);
  FQ_CHECK(shapes.empty() || (shapes.size() == 1 && shapes.contains("")), "import",
           "--input-shape NAME=SIZES is for inputs of ONNX files: use SIZES alone");
  return shapes.empty() ? Shape{} : shapes.at("");
}

/// Parses "name=1" and "name=mask.npy".
std::map<std::string, Tensor> read_fixed_inputs(const ImportFlags& flags) {
  std::map<std::string, Tensor> fixed;
  for (const auto& given : flags.fix_input) {
    const auto equals = given.rfind('=');
    FQ_CHECK(equals != std::string::npos && equals > 0 && equals + 1 < given.size(), "import",
             "--fix-input is '{}': use NAME=NUMBER or NAME=FILE.npy", given);
    const std::string name = given.substr(0, equals), text = given.substr(equals + 1);
    double number = 0;
    const bool is_new = fixed
                            .emplace(name, read_number(text, number) ? Tensor::scalar(number, DType::f64)
                                                                     : fq::detail::read_npy(text))
                            .second;
    FQ_CHECK(is_new, "import", "--fix-input gives '{}' twice", name);
  }
  return fixed;
}

ImportOptions read_options(const ImportFlags& flags) {
  const std::filesystem::path file(flags.model);
  // A folder may be given with a slash at the end.
  const auto name = file.has_filename() ? file.stem() : file.parent_path().filename();
  auto shapes = read_shapes(flags);
  // The entry without a name is the shape of all inputs. It may be missing.
  Shape shape = shapes[""];
  shapes.erase("");
  return {.sample_shape = std::move(shape),
          .name = fq::detail::valid_utf8(name.string()),
          .output = flags.output_name,
          .fixed_inputs = read_fixed_inputs(flags),
          .input_shapes = std::move(shapes)};
}

/// Reads the options for a network with one input, which needs no name.
ImportOptions read_unnamed_options(const ImportFlags& flags) {
  (void)read_shape(flags);
  return read_options(flags);
}

/// Reads a model file that describes its own network.
fq::detail::ImportedNetwork read_model(const ImportFlags& flags) {
  const bool is_gguf = flags.model.ends_with(".gguf");
  return fq::detail::import_model_file(flags.model,
                                       is_gguf ? read_unnamed_options(flags) : read_options(flags));
}

std::map<std::string, std::int64_t> layer_counts(const ImportedModel& model) {
  std::map<std::string, std::int64_t> counts;
  for (const auto& node : model.spec.nodes()) ++counts[node.type];
  return counts;
}

/// Returns the inputs of a network with several inputs. Each input is a range of elements of a data set row.
ordered_json input_parts(const ImportedModel& model) {
  auto parts = ordered_json::array();
  for (const auto& node : model.spec.nodes()) {
    if (node.type != "input_part") continue;
    const NodeOptions& options = node.options;
    const auto shape = options.value_or("shape", Shape());
    const auto begin = options.value_or("begin", std::int64_t{0});
    parts.push_back({{"name", options.value_or("name", std::string())},
                     {"type", options.value_or("type", std::string())},
                     {"shape", shape},
                     {"begin", begin},
                     {"end", begin + numel(shape)}});
  }
  return parts;
}

std::string layout_text(const ordered_json& parts) {
  std::string text;
  for (const auto& part : parts)
    text += fmt::format("{}{} {} {} {}..{}", text.empty() ? "" : ", ",
                        fq::detail::one_line_name(part.at("name").get<std::string>()),
                        part.at("type").get<std::string>(),
                        to_string(fq::detail::whole_values<std::int64_t>(part.at("shape"))),
                        fq::detail::whole_value<std::int64_t>(part.at("begin")),
                        fq::detail::whole_value<std::int64_t>(part.at("end")) - 1);
  return text;
}

/// Returns true if the model has a config.json of its network, and no flag names another.
bool describes_itself(const ImportFlags& flags) { return !flags.network && is_transformer(flags.model); }

/// Returns true if `path` holds weights without a network.
bool is_weights(const std::string& path) {
  return path.ends_with(".safetensors") || path.ends_with(".safetensors.index.json");
}

/// Returns the network of --network with the weights of the file, and a summary for people.
std::pair<Network, std::string> read_weights(const ImportFlags& flags) {
  const std::string& path = flags.model;
  FQ_CHECK(flags.network && !flags.input_shape.empty(), "import",
           "{} has weights and no network: use --network FILE|NAME and --input-shape SIZES too, or put a "
           "config.json of transformers into its folder",
           path);
  const auto spec = ModelSpec::load(*flags.network, flags.network_options);
  Network network = Network::create(spec, read_shape(flags), flags.classes);
  std::string text = take_weights(network, path, flags.map, false);
  fq::detail::quantize_as_packed(network, path);
  return {std::move(network), std::move(text)};
}

template <class Counts>
std::string list(const Counts& counts) {
  std::string out;
  for (const auto& [what, count] : counts)
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", count, what);
  return out;
}

FlagSet import_flags(ImportFlags& flags) {
  FlagSet set(
      "import",
      "Makes a checkpoint of an ONNX file, for example from PyTorch's exporters, to calibrate, fine-tune and "
      "export it. A file with QuantizeLinear and DequantizeLinear keeps its codes and scales. Also "
      "reads a folder that save_pretrained of Hugging Face's transformers wrote, a GGUF file of "
      "llama.cpp with its codes and scales, and weights as safetensors for a network that --network "
      "describes.",
      "MODEL.onnx|MODEL.gguf|FOLDER|WEIGHTS.safetensors --network FILE|NAME -o FILE [flags]");
  set.group("Files")
      .argument(flags.model, "model", "FILE",
                "a network (.onnx, .gguf); a folder of config.json and model.safetensors; or weights with "
                "PyTorch's names")
      .required()
      .output(flags.output, "output,o", "FILE", "the checkpoint", kind::checkpoint)
      .required()
      .list(flags.input_shape, "input-shape", "[NAME=]SIZES",
            "shape of one sample, if the file does not fix it: 3,32,32, or one for each input: "
            "image=3,32,32 ids=128; for texts the number of tokens")
      .value(flags.output_name, "output-name", "NAME", "the output to train, of a file that has several")
      .list(flags.fix_input, "fix-input", "NAME=VALUE",
            "inputs that are the same for every sample, as a mask of ones: a number for all elements, or "
            "FILE.npy")
      .need({"network-options", "classes"}, "network")
      .group("Weights")
      .value(flags.network, "network", "FILE|NAME", network_help())
      .value(flags.network_options, "network-options", "JSON",
             "options of a built-in model, as {\"widths\": [16, 32, 32]}")
      .value(flags.classes, "classes", "COUNT", {0, 1 << 30},
             "value of \"classes\" in the model; 0: the model has none")
      .value(flags.map, "map", "FILE",
             "JSON of names in that file and names in the model, \"backbone.*\": \"*\"; null leaves one out");
  add_general_flags(set, flags.general);
  return set;
}

std::int64_t parameter_count(const Network& network) {
  std::int64_t count = 0;
  for (const auto& parameter : network.module().parameters()) count += parameter.numel();
  return count;
}

ordered_json write_transformer(const Network& network, const std::string& path, Output& output) {
  network.save(path);
  const auto sample = network.identity().sample_shape;
  const std::int64_t parameters = parameter_count(network);
  const bool tokens = network.identity().dense;
  const std::int64_t classes = network.identity().classes;
  output.line(fmt::format("{} parameters, samples of {}, {}, {}", parameters, to_string(sample),
                          tokens        ? fmt::format("one of {} tokens for each", classes)
                          : classes > 0 ? fmt::format("{} classes", classes)
                                        : "a row for each token",
                          path));
  return {{"output", path},
          {"parameters", parameters},
          {"sample_shape", sample},
          {"classes", network.classes()},
          {"tokens", tokens ? classes : 0}};
}

// Counts parameters, without buffers (running means).
std::int64_t parameter_count(const ImportedModel& model) {
  std::int64_t count = 0;
  for (const auto& [name, tensor] : model.state.tensors())
    if (name.starts_with("parameters/")) count += tensor.numel();
  return count;
}

/// Returns "on the grids of the file: 5 activations of uint8, 4 weights of int8; target ort".
std::string describe_grids(const Network& network) {
  const auto weights = weight_quantizers(network.module());
  std::map<std::string, int> counts;
  for (const auto& [name, quantizer, aliases] : named_quantizers(network.module()))
    if (quantizer->enabled())
      ++counts[fmt::format("{} {}", weights.contains(quantizer) ? "weights of" : "activations of",
                           to_string(quantizer->descriptor().format()))];
  std::vector<std::string> parts;
  for (const auto& [what, count] : counts) parts.push_back(fmt::format("{} {}", count, what));
  return fmt::format("on the grids of the file: {}; target {}", fmt::join(parts, ", "),
                     name(model_target(network.module())));
}

void print_model(const ImportedModel& model, const Network& network, const std::string& path,
                 Output& output) {
  output.line(fmt::format("{} layers, {} parameters: {}", model.spec.nodes().size(), parameter_count(model),
                          list(layer_counts(model))));
  if (!model.recognised.empty()) output.line("recognised: " + list(model.recognised));
  if (network.quantized()) output.line(describe_grids(network));
  const auto parts = input_parts(model);
  if (!parts.empty())
    output.line(
        fmt::format("{} of x of the data set: {}",
                    parts.size() == 1 ? "1 input is all" : fmt::format("{} inputs are parts", parts.size()),
                    layout_text(parts)));
  const std::string gives = network.classes() > 1 ? fmt::format("{} classes", network.classes())
                                                  : "outputs of " + to_string(model.output_shape);
  output.line(fmt::format("samples of {}, {}, {}", to_string(model.sample_shape), gives, path));
}

ordered_json write_model(const ImportedModel& model, const Network& network, const std::string& path,
                         Output& output) {
  network.save(path);
  print_model(model, network, path, output);
  ordered_json recognised = ordered_json::object();
  for (const auto& [what, count] : model.recognised) recognised[what] = count;
  return {{"output", path},
          {"parameters", parameter_count(model)},
          {"layers", layer_counts(model)},
          {"recognised", recognised},
          {"quantized", network.quantized()},
          {"sample_shape", model.sample_shape},
          {"inputs", input_parts(model)},
          {"output_shape", model.output_shape},
          {"classes", network.classes()}};
}

/// A network in memory, and the function that writes and describes it.
struct Imported {
  Network network;
  std::function<ordered_json(Output& output)> write;
};

Imported import_weights(const ImportFlags& flags) {
  // The file is read when the plan is made. The step only writes the checkpoint.
  const auto [network, text] = read_weights(flags);
  return {network,
          [network = network, text = text, shape = read_shape(flags),
           path = flags.output](Output& output) -> ordered_json {
            network.save(path);
            output.line(fmt::format("{}, {}", text, path));
            return {{"output", path}, {"sample_shape", shape}, {"classes", network.classes()}};
          }};
}

Imported import_model(const ImportFlags& flags) {
  const std::string path = flags.output;
  if (describes_itself(flags)) {
    std::vector<WeightRename> renames;
    if (flags.map) renames = read_weight_renames(*flags.map);
    const Network network = fq::detail::import_folder(flags.model, read_unnamed_options(flags), renames);
    return {network, [=](Output& output) { return write_transformer(network, path, output); }};
  }
  if (is_weights(flags.model)) return import_weights(flags);
  const auto [read, network] = read_model(flags);
  return {network, [model = read, network = network, path](Output& output) {
            return write_model(model, network, path, output);
          }};
}

Plan plan_import(const ImportFlags& flags, PlannedFiles& planned) {
  Plan plan;
  // A file of an earlier phase cannot be read yet.
  if (planned.holds(flags.model)) {
    planned.add(flags.output);
    return plan;
  }
  const Imported imported = import_model(flags);
  planned.add(flags.output, imported.network);
  plan.add(fmt::format("import {} and write {}", flags.model, flags.output),
           [write = imported.write](Output& output, ordered_json& result) { result = write(output); });
  return plan;
}

}  // namespace

Command import_command() {
  return {"import", "make a checkpoint of an ONNX, GGUF or safetensors file",
          typed(import_flags, plan_import), true};
}

}  // namespace fq::cli
