#include "fakequant/cli/flags/flag_words.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>
#include <vector>

#include "fakequant/train/data/augment.h"

namespace fq::cli {
namespace {

// Text of a message of the library, and its replacement.
struct Word {
  std::string_view field, flag;
};

/// An ambiguous word includes the text after it, so that only a message about a setting matches.
constexpr auto kWords = std::to_array<Word>({
    {"use the same settings, or", "use the same settings, allow the changes by --allow-changes, or"},
    {"learning_rate", "--lr"},
    {"learning rate", "--lr"},
    {"weight_decay", "--weight-decay"},
    {"optimizer is", "--optimizer is"},
    {"momentum is", "--set optimizer.momentum is"},
    {"nesterov is", "--set optimizer.nesterov is"},
    {"schedule is", "--schedule is"},
    {"one_cycle", "onecycle"},
    {"multi_step", "multistep"},
    {"step_every", "--schedule every"},
    {"step_factor", "--schedule factor"},
    {"milestones is", "--schedule at is"},
    {"plateau_patience", "--schedule patience"},
    {"beta1 is", "--optimizer beta1 is"},
    {"beta2 is", "--optimizer beta2 is"},
    {"amsgrad is", "--optimizer amsgrad is"},
    {"dampening is", "--optimizer dampening is"},
    {"warm_up", "--set schedule.warm_up"},
    {"label_smoothing", "--label-smoothing"},
    {"average_decay", "--ema"},
    {"clip_norm", "--set clip_norm"},
    {"accumulation is", "--set accumulation is"},
    {"patience", "--set patience"},
    {"amax_gradient", "--set amax_gradient"},
    {"amax_momentum", "--set amax_momentum"},
    {"freeze_amax_after", "--set freeze_amax_after"},
    {"freeze_bn_after", "--set freeze_bn_after"},
    {"reestimate_bn", "--set reestimate_bn"},
    {"amax_rate", "--set amax_rate"},
    {"quant_start", "--set quant_start"},
    {"backward is", "--set backward is"},
    {"distillation is", "--distill is"},
    {"teacher_weight", "--set distillation.weight"},
    {"edge_bits", "--edge-bits"},
    {"effective_bits", "--effective-bits"},
    {"accuracy_budget", "--accuracy-budget"},
    {"skip is", "--skip is"},
    {"temperature is", "--set distillation.temperature is"},
    {"validation_samples", "the number of samples that --val-fraction holds out"},
    {"batch_size", "--batch"},
    {"batch size", "--batch"},
    {"micro_batch", "--micro-batch"},
    {"drop_last", "--set loader.drop_last"},
    {"loader_seed", "--seed"},
    {"seed is", "--seed is"},
    {"block of nodes is named", "block of nodes is named as checkpoint_blocks says,"},
    {"augmented", "changed by --augment"},
    {"balanced", "--set loader.balanced"},
    {"class_weights", "--set loader.class_weights"},
    {"amax_mode", "--amax"},
    {"a range to learn", "a range for --amax learned"},
    {"another method", "another --method"},
    {"quantize it unfolded", "calibrate it with --keep-bn"},
    {"low_rank adapters", "--lora adapters"},
    {"rank of adapters", "rank of --lora"},
    {"alpha of adapters", "alpha of --set low_rank.alpha"},
    {"layers of adapters", "layers of --set low_rank.layers"},
    {"lora_rank", "--lora"},
    {"lora_scale", "--set low_rank.alpha over --lora"},
    {"lora_layers", "--set low_rank.layers"},
    {"[calibrate] mask", "[calibrate] --mask"},
    {"ranges are not learned: learn them", "ranges of activations are not learned: use --amax learned"},
    {"training data", "training data (--data)"},
    {"other data", "other --data"},
});

/// Returns the replacements of the table and of --augment: its settings, and the beginning of messages about
/// them.
/// A list searched from the front: longer phrases must come before words that they begin with.
std::vector<std::pair<std::string, std::string>> all_words() {
  std::vector<std::pair<std::string, std::string>> out;
  for (const auto& word : kWords) out.emplace_back(word.field, word.flag);
  for (const auto& change : augment_changes())
    for (const auto& number : change.numbers) {
      const bool first = &number == &change.numbers.front();
      const std::string flag = std::string("--augment ") + change.name;
      const std::string named = first ? flag : flag + " (" + number.name + ")";
      out.emplace_back(std::string("augment_") + number.name, named);
      out.emplace_back(std::string("[augment] ") + number.name, "[augment] " + named);
    }
  return out;
}

bool is_name_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("_./-").find(c) != std::string_view::npos;
}

// "momentum is" must not match in "amax_momentum is", nor "backward" in a file name.
bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) {
  const bool before = begin == 0 || text[begin - 1] == ' ' || text[begin - 1] == '(';
  return before && (end >= text.size() || !is_name_character(text[end]));
}

}  // namespace

std::string with_flags(std::string_view message) {
  static const auto words = all_words();
  std::string out;
  // Replacements are not searched again, so that a flag name in one is not replaced a second time.
  for (std::size_t at = 0; at < message.size();) {
    const auto word = std::ranges::find_if(words, [&](const auto& w) {
      return message.substr(at).starts_with(w.first) && stands_alone(message, at, at + w.first.size());
    });
    out += word != words.end() ? word->second : std::string(1, message[at]);
    at += word != words.end() ? word->first.size() : 1;
  }
  return out;
}

}  // namespace fq::cli
