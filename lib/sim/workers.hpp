#pragma once

#include "coverage.hpp"
#include "seed_run.hpp"

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace cordma::sim::detail {

/// Seeds in a row of one scenario, for a process of their own.
struct seed_block {
  static constexpr std::uint64_t seeds_max = 100;
  seed_run::request first{};
  std::uint64_t count = 1;
  std::optional<std::uint64_t> expected_hash{};  ///< if a seed is played again
};

/// Report of a process that plays seeds, in memory that it shares with its parent.
struct block_report {
  static constexpr std::size_t faults_max = 4096;
  static constexpr std::size_t text_max = 64 * 1024;

  std::uint64_t done = 0;  ///< seeds that were played to their ends
  std::uint64_t events = 0;
  std::array<std::uint64_t, seed_block::seeds_max> hashes{};
  bool is_found = false;  ///< the seed behind those that are done shows it
  bool leaks = false;     ///< LeakSanitizer has told of memory that the process had lost
  /// A finding's; of a process that has died, the last events.
  std::array<char, text_max> text{};
  std::array<std::uint64_t, decision_kinds> decisions_made{};
  std::size_t faults_count = 0;
  std::array<std::uint64_t, faults_max> faults_happened{};
  coverage states;

  /// Fills the report. A process that dies of a fault leaves its seed's last events and decisions.
  /// \param seed_limit  A seed that takes so much longer hangs.
  void play(const seed_block& block, std::chrono::milliseconds seed_limit);

 private:
  void play_one(seed_run::request one);
  /// Looks for memory that this process has lost, if the program has LeakSanitizer.
  void check_leaks() noexcept;
  void take_faults(std::span<const std::uint64_t> happened) noexcept;
  void finish_dying() noexcept;
};

/// Plays blocks of seeds, each in a fresh process, several at once.
class workers {
 public:
  /// Gives the next block; a block of no seeds: there is none at present.
  using source = std::function<seed_block()>;
  /// Takes what a process has found. `ending` says how the process died; empty: it has ended well.
  using sink =
      std::function<void(const seed_block&, const block_report&, const std::string& ending)>;

  static constexpr std::chrono::milliseconds usual_limit = std::chrono::minutes{2};

  /// \param seed_limit  A seed that takes so much longer hangs.
  explicit workers(unsigned count, std::chrono::milliseconds seed_limit = usual_limit);
  workers(const workers&) = delete;
  ~workers();
  /// Runs until there is no block left, and no process.
  void run(const source& next, const sink& done);

 private:
  struct worker {
    block_report* report = nullptr;
    pid_t process = 0;
    seed_block block;
  };
  void start(worker& w) const;
  const std::chrono::milliseconds seed_limit_;
  std::vector<worker> all_;
};

}  // namespace cordma::sim::detail
