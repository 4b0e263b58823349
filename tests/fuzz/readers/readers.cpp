#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include <fmt/format.h>

#include "changes.h"
#include "fakequant/core/error.h"
#include "reader.h"

namespace fq::fuzz {
namespace {

constexpr Reader kReaders[] = {
    {"calibration", "input.h5", read_calibration, seal_state, change_state},
    {"checkpoint", "input.h5", read_checkpoint, seal_state, change_state},
    {"config", "input.json", read_config, nullptr, change_json},
    {"dataset", "input.h5", read_dataset, nullptr, nullptr, true},
    {"gguf", "input.gguf", read_gguf},
    {"model", "input.json", read_model, nullptr, change_json},
    {"npy", "input.npy", read_npy},
    {"onnx", "input.onnx", read_onnx},
    {"plan", "input.json", read_plan, nullptr, change_json},
    {"recipe", "input.json", read_recipe, nullptr, change_json},
    {"run", "input.h5", read_run, seal_state, change_state},
    {"safetensors", "input.safetensors", read_safetensors, nullptr, change_safetensors},
    {"scales", "input.h5", read_scales, seal_state, change_state},
    {"tensorrt", "input.cache", read_tensorrt},
    {"tokenizer", "input.json", read_tokenizer, nullptr, change_json},
};

void check_refusal(const std::string& text) {
  if (text.find('\n') != text.npos && text.find("\n  ") == text.npos)
    throw std::logic_error("a refusal is not one line: " + text);
}

}  // namespace

std::span<const Reader> readers() { return kReaders; }

const Reader& reader(const std::string& name) {
  const auto* found = std::ranges::find_if(kReaders, [&](const Reader& one) { return one.name == name; });
  if (found != std::end(kReaders)) return *found;
  std::string names;
  for (const auto& one : kReaders) names += fmt::format(" {}", one.name);
  throw std::runtime_error(fmt::format("there is no reader '{}', but{}", name, names));
}

std::vector<std::string> seeds(const Reader& reader) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(
           std::filesystem::path(FAKEQUANT_SOURCE_DIR "/tests/fuzz/corpus") / reader.name))
    if (!entry.path().filename().string().starts_with("refused")) files.push_back(entry.path());
  std::ranges::sort(files);
  std::vector<std::string> out;
  for (const auto& file : files) {
    std::ifstream stream(file, std::ios::binary);
    out.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
  }
  return out;
}

bool accepts(const Reader& reader, std::string bytes, const std::string& folder) {
  if (reader.seal != nullptr) reader.seal(bytes);
  const std::string path = (std::filesystem::path(folder) / reader.file).string();
  std::ofstream(path, std::ios::binary | std::ios::trunc).write(bytes.data(), std::streamsize(bytes.size()));
  try {
    reader.read(path);
    return true;
  } catch (const ArgumentError& error) {
    check_refusal(error.what());
    return false;
  } catch (const FileError& error) {
    check_refusal(error.what());
    return false;
  } catch (const std::exception& error) {
    throw std::logic_error(fmt::format("neither read nor refused: {}", error.what()));
  }
}

}  // namespace fq::fuzz
