#include "fakequant/train/loop/bit_schedule.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/train/detail/whole_number.h"

namespace fq {
namespace {

constexpr std::string_view kProgressive = "progressive";
constexpr int kFewest = 2, kMost = 8;

bool has_static_integers(const TensorQuantizer& q) {
  const QuantDescriptor& d = q.descriptor();
  return q.settings().enabled && q.quantizing() && d.format().is_integer() && d.fake_quant() &&
         d.needs_amax() && d.block_sizes().empty();
}

template <class Number>
Number number_in(std::string_view text, std::string_view list) {
  Number out{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  FQ_CHECK(error == std::errc() && end == text.data() + text.size(), kProgressive,
           "'{}' of '{}' is no number: give bits, and shares of the run behind a colon, as 8:0.25,4:0.25,2",
           text, list);
  return out;
}

BitStage stage_in(std::string_view text, std::string_view list) {
  const auto colon = text.find(':');
  BitStage out{.bits = number_in<int>(text.substr(0, colon), list)};
  if (colon == std::string_view::npos) return out;
  out.share = number_in<double>(text.substr(colon + 1), list);
  FQ_CHECK(out.share > 0, kProgressive, "{} bits have a share of {}: use more than 0, or none", out.bits,
           out.share);
  return out;
}

/// With a share each.
std::vector<BitStage> shared_out(std::vector<BitStage> stages) {
  double given = 0;
  std::int64_t open = 0;
  for (const auto& stage : stages) {
    given += stage.share;
    open += stage.share == 0 ? 1 : 0;
  }
  for (auto& stage : stages)
    if (stage.share == 0) stage.share = (1 - given) / double(open);
  return stages;
}

}  // namespace

std::vector<BitStage> parse_bit_stages(std::string_view text) {
  std::vector<BitStage> out;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    out.push_back(stage_in(text.substr(begin, end - begin), text));
    begin = end + 1;
  }
  check(out);
  return out;
}

std::string to_string(const std::vector<BitStage>& stages) {
  if (stages.empty()) return "none";
  std::string out;
  for (const auto& [bits, share] : stages) {
    out += fmt::format("{}{}", out.empty() ? "" : ",", bits);
    if (share > 0) out += fmt::format(":{}", share);
  }
  return out;
}

void check(const std::vector<BitStage>& stages) {
  int before = kMost + 1;
  double sum = 0;
  bool open = false;
  for (const auto& [bits, share] : stages) {
    FQ_CHECK(bits >= kFewest && bits <= kMost, kProgressive, "a stage has {} bits: use {} to {}", bits,
             kFewest, kMost);
    FQ_CHECK(bits < before, kProgressive, "{} bits come after {}: give fewer from stage to stage", bits,
             before);
    FQ_CHECK(share >= 0 && share <= 1, kProgressive, "a stage has a share of {} of the run: use 0 to 1",
             share);
    before = bits;
    sum += share;
    open = open || share == 0;
  }
  constexpr double kRounding = 1e-9;
  FQ_CHECK(open ? sum < 1 : stages.empty() || std::abs(sum - 1) < kRounding, kProgressive,
           "the shares of the run are {} together: give {}", sum,
           open ? "less than 1, to leave some for the others" : "1, or leave one out");
}

BitSchedule::BitSchedule(Module& model, std::vector<BitStage> stages, std::int64_t steps)
    : stages_(std::move(stages)) {
  check(stages_);
  FQ_CHECK(!stages_.empty(), kProgressive, "there are no stages: give some, such as 8, 4 and 2 bits");
  double share = 0;
  for (const auto& stage : shared_out(stages_)) {
    begins_.push_back(std::llround(share * double(steps)));
    share += stage.share;
  }
  for (std::size_t i = 0; i < begins_.size(); ++i)
    FQ_CHECK(begins_[i] < (i + 1 < begins_.size() ? begins_[i + 1] : steps), kProgressive,
             "{} bits have no step of the run of {}: give more epochs, or fewer stages", stages_[i].bits,
             steps);
  for_each_quantizer(model, [&](const NamedQuantizer& entry) {
    if (has_static_integers(*entry.quantizer))
      members_.push_back({entry.quantizer, entry.quantizer->descriptor().num_bits().bits()});
  });
  FQ_CHECK(!members_.empty(), kProgressive,
           "no quantizer has a static range of integers: quantize some so, as by w4a4, or leave it out");
  const int fewest = std::ranges::min(members_, {}, &Member::own_bits).own_bits;
  FQ_CHECK(stages_.back().bits == fewest, kProgressive,
           "the stages {} end with {} bits, the network has {}: end with those", to_string(stages_),
           stages_.back().bits, fewest);
}

int BitSchedule::bits() const noexcept {
  return stage_ < 0 ? stages_.back().bits : stages_[static_cast<std::size_t>(stage_)].bits;
}

bool BitSchedule::advance(std::int64_t step) {
  const auto next = std::ranges::upper_bound(begins_, step);
  const int stage = static_cast<int>(next - begins_.begin()) - 1;
  if (stage <= stage_) return false;
  stage_ = stage;
  bool changed = false;
  for (const auto& [quantizer, own_bits] : members_) {
    const int now = std::max(own_bits, bits());
    if (quantizer->descriptor().num_bits() == NumBits(now)) continue;
    auto options = quantizer->descriptor().options();
    options.num_bits = now;
    quantizer->set_descriptor(QuantDescriptor(options));
    changed = true;
  }
  return changed;
}

StateDict BitSchedule::state_dict() const {
  StateDict out;
  out.set_attribute("stage", stage_ + 1);
  return out;
}

void BitSchedule::load_state(const StateDict& state) {
  const std::int64_t stage = detail::whole_number(state, "stage", "progressive");
  FQ_CHECK(stage <= static_cast<std::int64_t>(stages_.size()), kProgressive, "stage {} of {}: there is none",
           stage, stages_.size());
  stage_ = static_cast<int>(stage) - 1;
}

}  // namespace fq
