#include "command_line.hpp"
#include "last_words.hpp"
#include "seed_run.hpp"
#include "shrink.hpp"
#include "timeline.hpp"
#include "workers.hpp"
#include "world_state.hpp"

#include <cordma/sim.hpp>

#include <sys/personality.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace cordma::sim {
namespace detail {
namespace {

using wall_clock = std::chrono::steady_clock;

constexpr unsigned shrinking_tries_max = 400;

/// Returns a finding's first line without its numbers: two runs with one of these show one fault.
std::string fault_of(const std::string& text) {
  std::string made = text.substr(0, text.find('\n'));
  std::erase_if(made, [](unsigned char c) { return std::isdigit(c) != 0; });
  return made;
}

/// Returns whether all seeds of a block were played before something was found: any may show it.
bool is_of_all(const seed_block& block, const block_report& report) {
  return report.leaks || report.done == block.count;
}

std::string text_of(const seed_block& block, const block_report& report,
                    const std::string& ending) {
  const std::uint64_t first = block.first.seed;
  const std::string seeds = std::to_string(first) + ".." +
                            std::to_string(first + std::max<std::uint64_t>(report.done, 1) - 1);
  if (report.leaks)
    return "the process of seeds " + seeds + " leaks memory: see LeakSanitizer's report";
  if (ending.empty()) return report.text.data();
  if (is_of_all(block, report)) return "the process of seeds " + seeds + ": " + ending;
  std::string made = "the process of the seed: " + ending;
  if (report.text[0] != 0) made += std::string{'\n'} + report.text.data();
  return made;
}

/// Plays scenarios, profiles and seeds in turn, and reports.
class session {
 public:
  explicit session(const command_line& asked)
      : asked_{asked},
        next_seed_{asked.first_seed},
        ends_at_{wall_clock::now() +
                 std::chrono::duration_cast<wall_clock::duration>(
                     std::chrono::duration<double, std::ratio<60>>{asked.minutes})} {
    for (const scenario* const s : asked.scenarios)
      for (const command_line::profile& p : asked.profiles)
        if (is_for(*s, p)) plays_.emplace_back(s, &p);
  }

  int run() {
    if (!asked_.known.empty()) play_known();
    workers all{asked_.jobs, asked_.seed_limit};
    if (!failed_)
      all.run([this] { return next(); }, [this](const seed_block& b, const block_report& r,
                                                const std::string& ending) { take(b, r, ending); });
    std::cout << status() << std::endl;
    if (failed_) explain();
    return failed_ ? 1 : 0;
  }

 private:
  struct failure {
    seed_run::request of;
    std::string text;
    std::uint64_t seeds = 1;  ///< from that of `of` on, of which one may show it
  };

  void play_known() {
    workers all{asked_.jobs, asked_.seed_limit};
    std::size_t next = 0;
    all.run(
        [&]() -> seed_block {
          if (failed_ || next == asked_.known.size()) return {.first = {}, .count = 0};
          const command_line::known_seed& one = asked_.known[next++];
          return {.first = {.what = one.what, .seed = one.seed, .wanted = one.with.wanted}};
        },
        [&](const seed_block& b, const block_report& r, const std::string& ending) {
          take(b, r, ending);
        });
  }

  /// Returns the next seeds of the next scenario and profile; now and then one seed again.
  seed_block next() {
    if (failed_) return {.first = {}, .count = 0};
    if (!again_.empty()) {
      const seed_block one = again_.back();
      again_.pop_back();
      return one;
    }
    if (next_play_ == plays_.size()) {
      next_play_ = 0;
      is_over_ = asked_.last_seed && *asked_.last_seed - next_seed_ < seed_block::seeds_max;
      next_seed_ += seed_block::seeds_max;
    }
    if (is_over_ || plays_.empty() || (!asked_.last_seed && wall_clock::now() >= ends_at_))
      return {.first = {}, .count = 0};
    std::uint64_t count = seed_block::seeds_max;
    if (asked_.last_seed) count = std::min(count - 1, *asked_.last_seed - next_seed_) + 1;
    const auto& [what, with] = plays_[next_play_++];
    return {
        .first = {.what = what, .seed = next_seed_, .wanted = with->wanted, .kept = asked_.kept},
        .count = count};
  }

  /// A scenario whose programs do not cope with errors is played without these, unless it is asked
  /// for by that profile alone.
  [[nodiscard]] bool is_for(const scenario& s, const command_line::profile& p) const {
    if (asked_.profiles.size() == 1) return true;
    return p.name == "scarce" ? s.survives_bad_alloc : s.is_robust || p.name != "hostile";
  }

  void take(const seed_block& b, const block_report& r, const std::string& ending) {
    seeds_ += r.done;
    events_ += r.events;
    states_->add(r.states);
    if (!ending.empty() || r.is_found || r.leaks) {
      failure f{.of = b.first, .text = text_of(b, r, ending)};
      if (is_of_all(b, r))
        f.seeds = std::max<std::uint64_t>(r.done, 1);
      else
        f.of.seed += r.done;
      fail(std::move(f));
    } else if (b.expected_hash) {
      if (r.hashes[0] != *b.expected_hash)
        fail({.of = b.first, .text = "the seed gives another run in a fresh process"});
    } else if (r.done > 1) {
      repeat_one_of(b, r);
    }
    if (const auto now = wall_clock::now(); now >= status_at_) {
      if (seeds_ > 0) std::cout << status() << std::endl;
      status_at_ = now + std::chrono::seconds{10};
    }
  }

  /// Has one of a hundred seeds played again.
  void repeat_one_of(const seed_block& b, const block_report& r) {
    unrepeated_ += r.done;
    if (unrepeated_ < seed_block::seeds_max) return;
    unrepeated_ -= seed_block::seeds_max;
    // The first seed of a block had a fresh process already.
    const std::uint64_t one = 1 + b.first.seed * 31 % (r.done - 1);
    seed_block again{.first = b.first, .count = 1, .expected_hash = r.hashes[one]};
    again.first.seed += one;
    again_.push_back(again);
  }

  void fail(failure f) {
    if (!failed_) failed_ = std::move(f);
  }

  [[nodiscard]] std::string status() const {
    const double seconds = std::chrono::duration<double>(wall_clock::now() - began_).count();
    std::string made = std::to_string(seeds_) + " seeds from " + std::to_string(asked_.first_seed) +
                       ", " + std::to_string(std::uint64_t(double(seeds_) / seconds)) +
                       " a second, " + std::to_string(events_) + " events, " +
                       std::to_string(states_->count()) + " states";
    return made;
  }

  [[nodiscard]] std::string profile_of(const seed_run::request& of) const {
    for (const auto& list : {asked_.profiles})
      for (const command_line::profile& p : list)
        if (p.wanted == of.wanted) return p.name;
    for (const command_line::known_seed& k : asked_.known)
      if (k.with.wanted == of.wanted) return k.with.name;
    return "none";
  }

  /// Prints the finding, with the fewest decisions that still show it.
  void explain() {
    const failure& f = *failed_;
    seed_run::request of = f.of;
    const auto again = [&](std::uint64_t seeds) {
      const std::string first = std::to_string(of.seed);
      return std::string{of.what->name} +
             (seeds == 1 ? " --seed " + first
                         : " --seeds " + first + ".." + std::to_string(of.seed + seeds - 1)) +
             " --profile " + profile_of(of);
    };
    std::cout << "FOUND: " << f.text << "\nAgain: " << again(f.seeds) << std::endl;
    if (!asked_.shrinks) return;
    const std::string wanted = fault_of(f.text);
    std::string text = f.text;
    unsigned tries = 0;
    const auto attempt = [&](const plan& p) {
      trial t;
      workers one{1, asked_.seed_limit};
      bool is_started = false;
      ++tries;
      one.run(
          [&]() -> seed_block {
            seed_block b{.first = of, .count = std::exchange(is_started, true) ? 0U : 1U};
            b.first.kept = p;
            return b;
          },
          [&](const seed_block& b, const block_report& r, const std::string& ending) {
            const bool has_failed = r.is_found || r.leaks || !ending.empty();
            t.is_found = has_failed && fault_of(text_of(b, r, ending)) == wanted;
            t.decisions_made = r.decisions_made;
            t.faults_happened.assign(r.faults_happened.begin(),
                                     r.faults_happened.begin() + std::ptrdiff_t(r.faults_count));
            if (t.is_found) text = text_of(b, r, ending);
          });
      return t;
    };
    trial whole = attempt(of.kept);
    for (std::uint64_t left = f.seeds - 1; left > 0 && !whole.is_found; --left) {
      ++of.seed;
      whole = attempt(of.kept);
    }
    if (!whole.is_found) {
      std::cout << "The seed alone does not show it.\n";
      return;
    }
    const plan least = shrink(whole, shrinking_tries_max, attempt);
    std::cout << "Shrunk in " << tries << " tries: " << text << "\nAgain: " << again(1)
              << " --plan '" << least.text() << "'" << std::endl;
  }

  const command_line& asked_;
  std::uint64_t next_seed_;
  std::vector<std::pair<const scenario*, const command_line::profile*>>
      plays_;  ///< one after the other
  std::size_t next_play_ = 0;
  bool is_over_ = false;
  std::vector<seed_block> again_;
  const wall_clock::time_point began_ = wall_clock::now();
  const wall_clock::time_point ends_at_;
  wall_clock::time_point status_at_ = began_ + std::chrono::seconds{10};
  std::uint64_t seeds_ = 0, events_ = 0;
  /// Seeds since one was played again, which begins with the first block.
  std::uint64_t unrepeated_ = seed_block::seeds_max - 1;
  std::unique_ptr<coverage> states_ = std::make_unique<coverage>();
  std::optional<failure> failed_;
};

/// Runs the program again without random addresses, unless it runs so.
void fix_addresses(const char* const* argv) {
  const int now = ::personality(0xffffffff);
  if (now < 0 || (now & ADDR_NO_RANDOMIZE) != 0) return;
  if (::personality(unsigned(now) | ADDR_NO_RANDOMIZE) < 0) return;  // A container may forbid it.
  ::execv("/proc/self/exe", const_cast<char* const*>(argv));
}

/// The file that the seed of this process is drawn into.
constinit const std::string* picture_file = nullptr;

void write_picture(const std::string& svg) {
  std::ofstream out{*picture_file};
  out << svg;
  if (!out.flush())
    throw std::system_error{errno, std::generic_category(), "--trace " + *picture_file};
}

/// Tells the last events of this process, which is about to die, and draws all.
void draw_last(int signal) {
  world_state* const w = seed_run::world_now();
  if (w == nullptr) return;
  static std::array<char, block_report::text_max> text;
  bounded_text last{text};
  w->append_last_events(last);
  std::cout << "the process of the seed: "
            << (signal == 0 ? "a sanitizer has found an error" : death_of(signal)) << '\n'
            << text.data() << std::endl;
  std::vector<std::string> names;
  for (const auto& host : w->hosts()) names.push_back(host->name());
  write_picture(timeline(w->trace().all(), names));
}

int play_one(const command_line& asked) {
  picture_file = &asked.timeline;
  before_death(&draw_last);
  seed_run::request one{.what = asked.scenarios[0],
                        .seed = asked.first_seed,
                        .wanted = asked.profiles[0].wanted,
                        .kept = asked.kept,
                        .keeps_all_events = true};
  const seed_run run{one};
  write_picture(timeline(run));
  std::cout << (run.found.empty() ? "nothing was found" : run.found) << '\n';
  return run.found.empty() ? 0 : 1;
}

}  // namespace
}  // namespace detail

int run_scenarios(int argc, const char* const* argv, std::span<const scenario> all) {
  try {
    detail::fix_addresses(argv);
    const detail::command_line asked{argc, argv, all};
    return asked.timeline.empty() ? detail::session{asked}.run() : detail::play_one(asked);
  } catch (const std::system_error& e) {
    std::cerr << argv[0] << ": " << e.what() << '\n';
    return 2;
  }
}

}  // namespace cordma::sim
