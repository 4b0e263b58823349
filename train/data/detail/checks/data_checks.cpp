#include "fakequant/train/data/detail/checks/data_checks.h"

#include <algorithm>
#include <map>
#include <tuple>

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/crc32c.h"
#include "fakequant/train/data/detail/checks/group_checks.h"

namespace fq::detail {
namespace {

/// Returns the FNV-1a hash.
std::uint64_t fnv1a_hash(std::span<const std::byte> bytes) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const auto byte : bytes) hash = (hash ^ std::uint64_t(byte)) * 0x100000001b3;
  return hash;
}

// Number of pairs that a message names.
constexpr std::size_t kNamed = 3;
// Smallest ratio of class sizes that is reported as unbalanced.
constexpr double kUneven = 10;

std::string place(const std::vector<GroupSummary>& groups, const SamplePlace& at) {
  return fmt::format("{}[{}]", groups[at.group].name, at.row);
}

/// Returns "train[3] and test[7], ..", with at most kNamed pairs.
std::string named(const std::vector<GroupSummary>& groups, const std::vector<Duplicates::Pair>& pairs) {
  std::string text;
  for (std::size_t i = 0; i < std::min(pairs.size(), kNamed); ++i)
    text += fmt::format("{}{} and {}", i == 0 ? "" : ", ", place(groups, pairs[i].first),
                        place(groups, pairs[i].second));
  return pairs.size() > kNamed ? text + ", .." : text;
}

void check_alike(const std::vector<GroupSummary>& groups, std::vector<Finding>& findings) {
  const auto find = [&](Verdict verdict, const char* about, std::string text) {
    findings.push_back({verdict, {}, about, std::move(text)});
  };
  const GroupSummary& first = groups.front();
  for (const GroupSummary& group : groups) {
    // Each group is compared with the first one: one finding per group that differs.
    if (group.sample_shape != first.sample_shape || group.tokens != first.tokens)
      find(Verdict::wrong, "shape",
           fmt::format("samples of {} are {}, but samples of {} are {}: no network accepts both", group.name,
                       to_string(group.sample_shape), first.name, to_string(first.sample_shape)));
    else if (group.how.scale != first.how.scale || group.how.mean != first.how.mean ||
             group.how.deviation != first.how.deviation)
      find(Verdict::doubt, "values",
           fmt::format("scale, mean and std of {} differ from {}", group.name, first.name));
  }
}

/// Returns the number of samples of each class of `count`.
std::vector<std::int64_t> class_counts(const Tensor& labels, std::int64_t count) {
  std::vector<std::int64_t> counts(std::size_t(count), 0);
  for (const auto label : labels.to_vector<std::int64_t>())
    if (label < count) ++counts[std::size_t(label)];
  return counts;
}

std::int64_t largest_class_count(const std::vector<GroupSummary>& groups) {
  std::int64_t count = 0;
  for (const auto& group : groups) {
    count = std::max(count, group.stated_classes);
    if (group.labels.defined())
      count = std::max(count, std::ranges::max(group.labels.to_vector<std::int64_t>()) + 1);
  }
  return count;
}

void check_balance(const GroupSummary& group, std::int64_t classes, std::vector<Finding>& findings) {
  const auto counts = class_counts(group.labels, classes);
  const auto find = [&](Verdict verdict, std::string text) {
    findings.push_back({verdict, group.name, "balance", std::move(text)});
  };
  std::vector<std::string> without;
  std::int64_t smallest = -1, largest = -1;
  for (std::int64_t c = 0; c < classes; ++c) {
    const auto at = [&](std::int64_t i) { return counts[std::size_t(i)]; };
    if (at(c) == 0) without.push_back(class_text(c, group.class_names));
    if (at(c) == 0) continue;
    if (smallest < 0 || at(c) < at(smallest)) smallest = c;
    if (largest < 0 || at(c) > at(largest)) largest = c;
  }
  if (!without.empty()) {
    const std::size_t more = without.size() > 8 ? without.size() - 8 : 0;
    without.resize(without.size() - more);
    find(Verdict::doubt, fmt::format("no samples of the classes {}{}", fmt::join(without, ", "),
                                     more > 0 ? fmt::format(" and {} more", more) : ""));
  }
  // All labels are outside of the classes.
  if (smallest < 0) return;
  const auto least = counts[std::size_t(smallest)], most = counts[std::size_t(largest)];
  if (least == most) return find(Verdict::fine, fmt::format("{} samples of each class", least));
  const std::string text =
      fmt::format("{} samples of class {}, {} of class {}", least, class_text(smallest, group.class_names),
                  most, class_text(largest, group.class_names));
  find(double(most) > kUneven * double(least) ? Verdict::doubt : Verdict::fine, text);
}

void check_duplicates(const std::vector<GroupSummary>& groups, const Duplicates& duplicates,
                      std::vector<Finding>& findings) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<Duplicates::Pair>> found;
  // Pairs with two different labels; -1 is a sample without one.
  std::vector<Duplicates::Pair> otherwise;
  for (const auto& pair : duplicates.pairs()) {
    found[{pair.first.group, pair.second.group}].push_back(pair);
    if (pair.first.label != pair.second.label && pair.first.label >= 0 && pair.second.label >= 0)
      otherwise.push_back(pair);
  }
  const auto find = [&](Verdict verdict, std::string text) {
    findings.push_back({verdict, {}, "duplicates", std::move(text)});
  };
  for (const auto& [at, pairs] : found)
    find(Verdict::doubt,
         at.first == at.second
             ? fmt::format("{} samples of {} repeat others of it: {}", pairs.size(), groups[at.first].name,
                           named(groups, pairs))
             : fmt::format("{} samples of {} are in {} too, whose scores are then too good: {}", pairs.size(),
                           groups[at.second].name, groups[at.first].name, named(groups, pairs)));
  if (!otherwise.empty())
    find(Verdict::doubt,
         fmt::format("{} of them have another label: {}", otherwise.size(), named(groups, otherwise)));
  if (found.empty()) find(Verdict::fine, "none");
}

}  // namespace

// Two independent checksums (64 and 32 bits) instead of the samples: 24 bytes per sample bound the memory.
void Duplicates::add(std::span<const std::byte> sample, SamplePlace place) {
  entries_.push_back({fnv1a_hash(sample), crc32c(sample.data(), sample.size()), place});
}

std::vector<Duplicates::Pair> Duplicates::pairs() const {
  auto sorted = entries_;
  std::ranges::sort(sorted, {}, [](const Entry& entry) {
    // Equal samples become neighbours, and the earliest one comes first.
    return std::tuple(entry.hash, entry.crc, entry.place.group, entry.place.row);
  });
  std::vector<Pair> out;
  for (std::size_t i = 0, first = 0; i < sorted.size(); ++i) {
    if (sorted[i].hash != sorted[first].hash || sorted[i].crc != sorted[first].crc) first = i;
    if (i != first) out.push_back({sorted[first].place, sorted[i].place});
  }
  std::ranges::sort(out, {}, [](const Pair& pair) { return std::pair(pair.second.group, pair.second.row); });
  return out;
}

std::string_view name(Verdict verdict) noexcept {
  return verdict == Verdict::fine ? "fine" : verdict == Verdict::doubt ? "doubt" : "wrong";
}

void check_together(const std::vector<GroupSummary>& groups, const Duplicates& duplicates,
                    std::vector<Finding>& findings) {
  check_alike(groups, findings);
  const std::int64_t classes = largest_class_count(groups);
  for (const auto& group : groups)
    if (group.labels.defined() && classes > 0) check_balance(group, classes, findings);
  check_duplicates(groups, duplicates, findings);
}

std::vector<Finding> check_data_set(const std::string& path, const CheckProgress& progress) {
  std::vector<Finding> findings;
  std::vector<GroupSummary> groups;
  Duplicates duplicates;
  const auto names = data_groups(path);
  for (const auto& group : names)
    if (auto summary = check_group(path, group, std::uint32_t(groups.size()), findings, duplicates, progress))
      groups.push_back(std::move(*summary));
  if (!groups.empty()) check_together(groups, duplicates, findings);
  return findings;
}

}  // namespace fq::detail
