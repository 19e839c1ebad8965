#pragma once

#include "coverage.hpp"

#include <cordma/base/time.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace cordma::sim::detail {

constexpr std::uint64_t hash_of(const char* text) noexcept {
  std::uint64_t made = 0xcbf29ce484222325;
  for (; *text != 0; ++text)
    made = (made ^ std::uint64_t(static_cast<unsigned char>(*text))) * 0x100000001b3;
  return made;
}

/// Text of an event, mostly a literal; each `{}` stands for one of its numbers.
struct event_text {
  consteval event_text(const char* literal)  // NOLINT: implicit.
      : text{literal}, hash{hash_of(literal)} {}
  /// Makes one of a text that lives as long as the program.
  static event_text lasting(const char* text) noexcept {
    event_text made{""};
    made.text = text;
    made.hash = hash_of(text);
    return made;
  }
  const char* text;
  std::uint64_t hash;
};
/// Returns one of two texts. Of two that `?:` itself makes, clang 14 crashes.
constexpr event_text either(bool is_first, event_text first, event_text second) noexcept {
  return is_first ? first : second;
}

struct trace_record {
  time_point at{};
  unsigned host = 0;
  event_text what = "";
  std::array<std::uint64_t, 4> numbers{};

  [[nodiscard]] std::string text() const;
  /// Appends the text. Allocates nothing but what `to` does.
  template <class Text>
  void append_to(Text& to) const {
    std::size_t next = 0;
    std::array<char, 24> digits;
    for (std::string_view rest = what.text; !rest.empty();) {
      const std::size_t hole = rest.find("{}");
      to += rest.substr(0, hole);
      if (hole == std::string_view::npos || next == numbers.size()) break;
      std::snprintf(digits.data(), digits.size(),
                    numbers[next] > 0xffff ? "0x%" PRIx64 : "%" PRIu64, numbers[next]);
      to += std::string_view{digits.data()};
      ++next;
      rest.remove_prefix(hole + 2);
    }
  }
};

/// Events of a world: a hash of all, and the last ones of each host, or all of them.
class trace {
 public:
  void add_host() { last_.emplace_back(); }
  void note(const trace_record& r) {
    hash(std::uint64_t(r.at.time_since_epoch().count()));
    hash(r.what.hash ^ r.host);
    for (const std::uint64_t number : r.numbers) hash(number);
    recent& of = last_[r.host - 1];
    if (covers_ != nullptr) {
      const std::uint64_t now = r.what.hash * 64 + std::uint64_t(std::bit_width(r.numbers[3]));
      covers_->mark(of.state * 0x100000001b3 + now);
      of.state = now;
    }
    of.records[of.count++ % kept] = r;
    if (keeps_all_) all_.push_back(r);
  }
  void keep_all() noexcept { keeps_all_ = true; }
  void cover(coverage& states) noexcept { covers_ = &states; }

  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_; }
  [[nodiscard]] const std::vector<trace_record>& all() const noexcept { return all_; }
  /// Returns the last events of a host, the oldest first.
  [[nodiscard]] std::vector<trace_record> last_of(unsigned host) const;
  /// Calls `f` with the last events of a host, the oldest first.
  template <class F>
  void for_each_last(unsigned host, F f) const {
    const recent& of = last_[host - 1];
    for (std::size_t n = of.count - std::min(of.count, kept); n < of.count; ++n)
      f(of.records[n % kept]);
  }

 private:
  static constexpr std::size_t kept = 24;
  struct recent {
    std::array<trace_record, kept> records{};
    std::size_t count = 0;
    std::uint64_t state = 0;  ///< the last event's
  };
  void hash(std::uint64_t word) noexcept { hash_ = (hash_ ^ word) * 0x100000001b3; }

  std::vector<recent> last_;
  std::vector<trace_record> all_;
  std::uint64_t hash_ = 0xcbf29ce484222325;
  bool keeps_all_ = false;
  coverage* covers_ = nullptr;
};

}  // namespace cordma::sim::detail
