#pragma once

#include <cordma/detail/base/counter.hpp>
#include <cordma/memory/local_mr.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace cordma {

/// Keeps registrations of the program's own memory for the next use. The least recently used goes
/// first, but none that somebody holds. docs/decisions/0022 has the reasons. \thread any.
class registration_cache {
 public:
  struct limits {
    std::size_t registrations;
    std::size_t bytes;
  };
  struct counters {
    counter hits;
    counter misses;
    counter evictions;  ///< Registrations that went for want of room.
    counter bytes;      ///< Now.
  };

  explicit registration_cache(const limits& of) noexcept : limits_{of} {}
  registration_cache(registration_cache&&) = delete;

  /// Returns a hold on registered memory that covers `memory`, and counts a hit or a miss. A miss
  /// makes room for the registration that follows. Memory for reading may be part of a writable
  /// registration, unless `peers_write`: the key of one lets them write.
  /// \cost a hit: a lock and a search; no allocation.
  [[nodiscard]] std::optional<local_mr> find(std::span<const std::byte> memory, bool is_writable,
                                             bool peers_write);
  /// Keeps a registration, and returns a hold on it. Without room for it, returns it as it is.
  [[nodiscard]] local_mr add(local_mr fresh, bool is_writable);
  /// Drops each registration of a part of `range`: its slices are stale. Returns how many of them
  /// are still held, and end with their last holder.
  std::size_t invalidate(std::span<const std::byte> range) noexcept;
  /// Drops all that nobody holds. Returns true if that was something.
  bool trim() noexcept;

  [[nodiscard]] const counters& count() const noexcept { return count_; }

 private:
  struct entry {
    local_mr memory;
    bool is_writable = false;
    /// False once a larger registration covers the memory; the holders still have this one.
    bool is_found = true;

    [[nodiscard]] const std::byte* begin() const noexcept { return memory.slice().bytes().data(); }
    [[nodiscard]] const std::byte* end() const noexcept { return begin() + memory.size_bytes(); }
    [[nodiscard]] bool is_idle() const noexcept { return memory.slice().block()->holders() == 1; }
  };
  using entries = std::list<entry>;
  /// A registration without room here, which its holder owns. The block tells when it has ended.
  struct guest {
    const_local_mr_slice memory;

    [[nodiscard]] memory_block& block() const noexcept { return *memory.block(); }
    [[nodiscard]] bool has_ended() const noexcept {
      return block().generation() != memory.generation();
    }
  };
  /// Registrations by their first byte. None covers another one, so both their ends ascend.
  using index = std::map<const std::byte*, entries::iterator>;

  [[nodiscard]] index& index_of(bool is_writable) noexcept { return by_address_[is_writable]; }
  [[nodiscard]] entry* covering(std::span<const std::byte> memory, bool is_writable) noexcept;
  [[nodiscard]] static local_mr hold(entry& e, std::span<const std::byte> memory);
  [[nodiscard]] local_mr admit_guest(local_mr memory);
  [[nodiscard]] bool has_room_for(std::size_t bytes) const noexcept;
  void make_room_for(std::size_t bytes, entries& gone) noexcept;
  void supersede(const entry& by, entries& gone) noexcept;
  /// Moves an entry to `gone`, which ends it outside of the lock. Returns the one behind it.
  entries::iterator drop(entries::iterator at, entries& gone) noexcept;

  const limits limits_;
  counters count_;
  std::mutex mutex_;
  entries all_;  // The most recently used first.
  std::array<index, 2> by_address_;
  std::vector<guest> guests_;
};

}  // namespace cordma
