#include "cell.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <random>
#include <tuple>

namespace walk {
namespace {

using cordma::completion_mode;

constexpr std::size_t KiB = 1024, MiB = 1024 * KiB;

constexpr std::array setting_names{"one thread", "two threads", "two processes", "TCP link",
                                   "two hosts"};
constexpr std::array mode_names{"event", "busy", "adaptive", "manual"};
constexpr std::array deed_names{
    "send", "send of slices",  "write",         "write of slices", "write_with_imm",
    "read", "read of slices",  "compare_swap",  "fetch_add",       "stream message",
    "call", "call by request", "call by reply", "call by source",  "call by sink"};
constexpr std::array depths{1u, 16u, 64u};

/// Each size is walked with those one byte beside it.
constexpr std::size_t bounds[] = {
    0,
    8,             // An atomic's operand.
    32,            // The part of a message that is copied behind its head.
    64,            // Inline data of cordma.
    1 * KiB,       // Inline data of softverbs, and the bytes that it copies at once.
    4 * KiB - 24,  // A call in one receive buffer.
    4 * KiB,       // The MTU; a message in one receive buffer; requests that share a doorbell.
    32 * KiB,      // softverbs' segment.
    64 * KiB,      // The longest loan from an agent's stock.
    128 * KiB,     // softverbs' batch of frames.
    256 * KiB,     // softverbs' piece of a READ, a quarter of its ring.
    512 * KiB,     // Half of softverbs' ring.
    1 * MiB,       // softverbs' ring, its turn; memory that cordma holds for a turn.
    2 * MiB,       // A huge page.
    4 * MiB,       // Sixteen of softverbs' pieces.
    8 * MiB,       // The longest message on Soft-RoCE.
    16 * MiB,
    64 * MiB};  // The longest message of a stream, by default.

/// Deals 0 to n - 1 in random order, again and again.
class deck {
 public:
  deck(std::size_t n, std::mt19937_64& random) : cards_(n), random_{random} {}
  std::size_t deal() {
    if (next_ == 0) {
      for (std::size_t i = 0; i < cards_.size(); ++i) cards_[i] = i;
      std::shuffle(cards_.begin(), cards_.end(), random_);
    }
    const std::size_t card = cards_[next_];
    next_ = (next_ + 1) % cards_.size();
    return card;
  }

 private:
  std::vector<std::size_t> cards_;
  std::mt19937_64& random_;
  std::size_t next_ = 0;
};

}  // namespace

std::string to_string(const cell& c) {
  std::string text = "walk " + std::to_string(c.number) + ": " +
                     deed_names.at(std::size_t(c.what)) + ", " + std::to_string(c.size_bytes) +
                     " bytes, ";
  text += std::to_string(c.operations) + " times, depth " + std::to_string(c.depth) + ", ";
  text += mode_names.at(std::size_t(c.mode)) + std::string{" asks "};
  text += mode_names.at(std::size_t(c.answering_mode)) + std::string{", "};
  text += setting_names.at(std::size_t(c.where)) + std::string{", heartbeats "};
  return text + (c.has_heartbeats ? "on" : "off");
}

std::vector<std::size_t> size_classes(const world& from) {
  std::vector<std::size_t> all;
  std::ranges::copy_if(bounds, std::back_inserter(all),
                       [&](std::size_t b) { return b <= from.size_max; });
  return all;
}

std::vector<cell> draw(const world& from, std::uint64_t count, std::uint64_t seed) {
  std::mt19937_64 random{seed};
  const std::vector<std::size_t> classes = size_classes(from);
  deck deeds{deed_names.size(), random}, sizes{classes.size(), random};
  deck corners{mode_names.size() * from.settings.size(), random};
  std::vector<cell> all(count);
  for (cell& c : all) {
    const std::size_t corner = corners.deal();
    c.number = std::uint32_t(&c - all.data());
    c.where = from.settings[corner / mode_names.size()];
    c.mode = completion_mode(corner % mode_names.size());
    const bool has_two_modes = c.where != setting::one_thread && random() % 3 == 0;
    c.answering_mode = has_two_modes ? completion_mode(random() % mode_names.size()) : c.mode;
    c.what = deed(deeds.deal());
    c.depth = std::min(depths.at(random() % depths.size()), from.depth_max);
    c.has_heartbeats = random() % 4 == 0;
    if (is_atomic(c.what)) {
      c.size_bytes = sizeof(std::uint64_t);
    } else {
      const std::size_t bound = classes[sizes.deal()], beside = random() % 3;
      const std::size_t least = c.what == deed::call_source || c.what == deed::call_sink ? 1 : 0;
      c.size_bytes = std::clamp(std::max<std::size_t>(bound + beside, 1) - 1, least, from.size_max);
    }
    const std::size_t room = std::max<std::size_t>(from.walk_bytes_max / c.stride(), 1);
    c.operations = unsigned(std::min<std::size_t>(std::max(2 * c.depth, 32u), room));
  }
  std::ranges::sort(all, {}, [](const cell& c) {
    return std::tuple{c.where, c.mode, c.answering_mode, c.number};
  });
  return all;
}

}  // namespace walk
