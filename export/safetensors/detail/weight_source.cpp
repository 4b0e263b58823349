#include "fakequant/export/safetensors/detail/weight_source.h"

#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/file_reader.h"
#include "fakequant/core/io/detail/json_text.h"

namespace fq::detail {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestName = 1000;

[[noreturn]] void fail(const std::string& path, const std::string& why) {
  throw FileError(path, {}, fmt::format("[load_weights] {} {}", path, why));
}

/// Returns Python code that converts a file of torch.save to safetensors.
std::string conversion(const std::string& path) {
  return fmt::format(
      "is a PyTorch file, whose pickles are not read: make a safetensors file of it by python3 -c \"import "
      "torch, safetensors.torch as s; w = torch.load('{}', map_location='cpu', weights_only=True); w = "
      "w.get('state_dict', w.get('model', w)); s.save_file({{k: v.clone().contiguous() for k, v in w.items() "
      "if torch.is_tensor(v)}}, '{}')\" (pip install torch safetensors)",
      path, fs::path(path).replace_extension(".safetensors").string());
}

bool is_pickle(const FileReader& file, const std::string& ending) {
  unsigned char first[4] = {};
  if (file.size() < 4) return false;
  file.read(0, first, sizeof first);
  // torch.save writes a ZIP archive, before PyTorch 1.6 a pickle of protocol 2 and later. A .npz file is a
  // ZIP too.
  const bool zip = first[0] == 'P' && first[1] == 'K' && first[2] == 3 && first[3] == 4;
  return (zip && ending != ".npz") || (first[0] == 0x80 && first[1] >= 2 && first[1] <= 5 && first[2] != 0);
}

void check_kind(const std::string& path) {
  std::error_code none;
  if (fs::is_directory(path, none))
    fail(path, "is a directory: name the .safetensors file in it, or its model.safetensors.index.json");
  const std::string ending = fs::path(path).extension().string();
  const FileReader file(path);
  if (ending == ".pt" || ending == ".pth" || ending == ".ckpt" || is_pickle(file, ending))
    fail(path, conversion(path));
  const std::string kind = file_kind(path);
  if (kind == "an ONNX model")
    fail(path,
         fmt::format("is an ONNX model: use fakequant import {} -o FILE for network and weights", path));
  if (kind == "a file of fakequant")
    fail(path, "is a file of fakequant, not of safetensors: a checkpoint is given by --checkpoint");
}

}  // namespace

WeightSource::WeightSource(const std::string& path) {
  check_kind(path);
  if (!path.ends_with(".json")) {
    add(path);
    unpack(path);
    return;
  }
  const auto text = JsonText::load(path, "load_weights");
  const auto names = JsonValue(*text).at("weight_map");
  std::set<std::string> files;
  // The index names a file for every tensor. Each file is opened once.
  for (const auto& [name, file] : names.json().items()) {
    const std::string shard = names.at(name).string();
    // An index is untrusted: it must not name files outside of its folder.
    if (shard.empty() || fs::path(shard).filename() != shard || shard == "..")
      names.at(name).fail(fmt::format("'{}' is not the name of a file in the folder of the index", shard));
    if (files.insert(shard).second) add((fs::path(path).parent_path() / shard).string());
  }
  for (const auto& [name, file] : names.json().items())
    if (!place_.contains(name))
      names.at(name).fail(fmt::format("{} has no '{}'", file.get<std::string>(), name));
  unpack(path);
}

Tensor WeightSource::read(const std::string& name) const {
  const auto found = unpacked_.find(name);
  return found != unpacked_.end() ? found->second : files_[place_.at(name)].read(name);
}

void WeightSource::unpack(const std::string& path) {
  packed_ = packed_file(path, entries_,
                        [this](const std::string& name) { return files_[place_.at(name)].read(name); });
  const std::set<std::string> hidden(packed_.hidden.begin(), packed_.hidden.end());
  for (const auto& layer : packed_.layers) unpacked_.emplace(layer.name + ".weight", layer.values);
  // Readers of float weights see one F32 tensor instead of codes, scales and shapes.
  std::erase_if(entries_, [&](const SafetensorsEntry& entry) {
    return hidden.contains(entry.name) || unpacked_.contains(entry.name);
  });
  for (const auto& [name, values] : unpacked_) {
    SafetensorsEntry entry;
    entry.name = name;
    entry.dtype = "F32";
    entry.shape = values.shape();
    entries_.push_back(std::move(entry));
  }
}

void WeightSource::add(const std::string& path) {
  files_.emplace_back(path);
  for (const auto& entry : files_.back().entries()) {
    if (entry.name.size() > kLongestName)
      fail(path, fmt::format("has a tensor whose name has {} characters: at most {}", entry.name.size(),
                             kLongestName));
    if (!place_.emplace(entry.name, files_.size() - 1).second)
      fail(path, fmt::format("has '{}', as another file of the index", entry.name));
    entries_.push_back(entry);
  }
}

}  // namespace fq::detail
