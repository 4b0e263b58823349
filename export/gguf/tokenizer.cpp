#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/core/error.h"
#include "fakequant/export/gguf/detail/vocabulary.h"
#include "fakequant/export/gguf/import.h"

namespace fq {
namespace {

using nlohmann::json;
using Texts = std::vector<std::string>;

constexpr std::int32_t kControl = 3, kUserDefined = 4;  // of tokenizer.ggml.token_type

class ReadTokenizer {
 public:
  ReadTokenizer(const GgufModel& model, const std::string& file) : model_(model), file_(file) {}

  GgufTokenizer run() {
    // A complete tokenizer.json in the file has more than the keys of ggml, such as the normalizer.
    if (const auto* whole = value<std::string>("tokenizer.huggingface.json")) return {{}, *whole};
    const auto* kind = value<std::string>("tokenizer.ggml.model");
    if (kind == nullptr || *kind == "none") return {};
    if (*kind != "gpt2")
      fail(fmt::format(
          "its tokenizer is '{}'{}, only byte-level BPE, 'gpt2', is supported. Make the data set with "
          "dataset from-text --tokenizer and the network's tokenizer.json: checkpoints trained on "
          "it contain the tokenizer",
          kind->substr(0, 100), *kind == "llama" ? " (sentencepiece, pieces with scores)" : ""));
    const auto* tokens = value<Texts>("tokenizer.ggml.tokens");
    if (tokens == nullptr) fail("it has no tokenizer.ggml.tokens");
    const auto* merges = value<Texts>("tokenizer.ggml.merges");
    if (merges != nullptr && !merges->empty()) return {{}, joined(*tokens, *merges).dump()};
    // Without merges a token is not a result of BPE: the bytes of each token are all that is known.
    GgufTokenizer out;
    for (const auto& token : *tokens) out.tokens.push_back(detail::decode_byte_alphabet(token));
    return out;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw FileError(file_, {}, fmt::format("[import] {}: {}", file_, why));
  }

  template <class T>
  [[nodiscard]] const T* value(std::string_view key) const {
    const GgufValue* found = model_.value(key);
    if (found == nullptr) return nullptr;
    if (!std::holds_alternative<T>(*found)) fail(fmt::format("the key '{}' is of another type", key));
    return std::get_if<T>(found);
  }

  /// Returns a BPE model in the form that the package tokenizers writes.
  [[nodiscard]] json joined(const Texts& tokens, const Texts& merges) const {
    json vocabulary = json::object();
    // The id of a token is its position in the list.
    for (std::size_t id = 0; id < tokens.size(); ++id) vocabulary[tokens[id]] = id;
    if (vocabulary.size() != tokens.size()) fail("a token is in tokenizer.ggml.tokens twice");
    const json levels{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}};
    return {{"version", "1.0"},
            {"added_tokens", added(tokens)},
            {"normalizer", nullptr},
            {"pre_tokenizer", words(levels)},
            {"decoder", levels},
            {"model",
             {{"type", "BPE"},
              // Llama 3 takes a word that is a token as a whole without merging its parts.
              {"ignore_merges", pattern() == "llama-bpe"},
              {"vocab", std::move(vocabulary)},
              {"merges", merges}}}};
  }

  [[nodiscard]] std::string pattern() const {
    const auto* found = value<std::string>("tokenizer.ggml.pre");
    return found == nullptr ? "gpt-2" : *found;
  }

  [[nodiscard]] json words(json levels) const {
    const std::string name = pattern();
    // ByteLevel contains the expression of GPT-2. Other expressions are a step before it.
    levels["use_regex"] = name == "gpt-2";
    if (name == "gpt-2") return levels;
    try {
      const json split{{"type", "Split"},
                       {"pattern", {{"Regex", detail::pattern_regex(name)}}},
                       {"behavior", "Isolated"},
                       {"invert", false}};
      return {{"type", "Sequence"}, {"pretokenizers", {split, levels}}};
    } catch (const ArgumentError& error) {
      fail(fmt::format("tokenizer.ggml.pre: {}", error.what()));
    }
  }

  /// Returns the tokens that are not pieces of words, like the end of a text.
  [[nodiscard]] json added(const Texts& tokens) const {
    auto out = json::array();
    const auto* types = value<std::vector<std::int32_t>>("tokenizer.ggml.token_type");
    if (types == nullptr) return out;
    if (types->size() != tokens.size())
      fail(fmt::format("it has {} tokens and types of {}", tokens.size(), types->size()));
    for (std::size_t id = 0; id < tokens.size(); ++id)
      if (const auto type = (*types)[id]; type == kControl || type == kUserDefined)
        out.push_back({{"id", id},
                       {"content", tokens[id]},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", type == kControl}});
    return out;
  }

  const GgufModel& model_;
  const std::string& file_;
};

}  // namespace

GgufTokenizer gguf_tokenizer(const GgufModel& model, const std::string& file) {
  return ReadTokenizer(model, file).run();
}

}  // namespace fq
