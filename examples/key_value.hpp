#pragma once

// The table of example 09. Its owner writes it, and any peer that may reads it by one-sided READ,
// at any time. Neither waits for the other.
//
// No order holds between the two. A READ is atomic in nothing but aligned words of 8 bytes. A READ
// may fetch the words in any order, while the owner's processor stores them one by one. A copy is
// whole when both conditions hold:
//  - The versions before and after the rest are equal, and even: the owner makes both odd before it
//    changes anything, and even again, two more than before, when it is done. A reader sees that
//    quickly, and needs no more if the READ went from one end to the other.
//  - The checksum is that of version, key and value. The checksum finds all other mixtures: of two
//    writes, or of one write's versions with another's bytes.

#include "crc64.hpp"

#include <cordma/cordma.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace key_value {

struct alignas(64) slot {
  static constexpr std::size_t key_max = 40, value_max = 4024;

  std::uint64_t before = 0;  // 0: nothing was ever stored here.
  std::uint64_t checksum = 0;
  std::uint32_t key_bytes = 0, value_bytes = 0;
  std::array<char, key_max> key_text{};
  std::array<std::byte, value_max> bytes{};
  std::uint64_t after = 0;

  [[nodiscard]] std::string_view key() const { return {key_text.data(), key_bytes}; }
  [[nodiscard]] std::span<const std::byte> value() const { return {bytes.data(), value_bytes}; }
  [[nodiscard]] std::uint64_t sum_with(std::uint64_t version) const {
    const std::array<std::uint64_t, 3> head{version, key_bytes, value_bytes};
    return crc64{}
        .add(std::as_bytes(std::span{head}))
        .add(std::as_bytes(std::span{key()}))
        .add(value())
        .value();
  }

  /// Tells whether a copy, which nobody changes any more, is whole. The lengths may be part of what
  /// is torn.
  [[nodiscard]] bool is_whole() const {
    return before == after && before % 2 == 0 && key_bytes <= key_max && value_bytes <= value_max &&
           (before == 0 || checksum == sum_with(before));
  }

  /// Begins a write; for the owner alone, who has seen to the lengths.
  void begin_write() { set_versions(before + 1); }
  void end_write() {
    checksum = sum_with(before + 1);
    set_versions(before + 1);
  }
  void write(std::string_view new_key, std::span<const std::byte> new_value) {
    begin_write();
    key_bytes = std::uint32_t(new_key.size()), value_bytes = std::uint32_t(new_value.size());
    std::ranges::copy(new_key, key_text.begin());
    std::ranges::copy(new_value, bytes.begin());
    end_write();
  }

 private:
  /// No store moves from one side of this to the other, by the compiler or by the processor.
  void set_versions(std::uint64_t version) {
    std::atomic_thread_fence(std::memory_order_release);
    std::atomic_ref{after}.store(version, std::memory_order_relaxed);
    std::atomic_ref{before}.store(version, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
  }
};
static_assert(sizeof(slot) == 4096 && std::is_trivially_copyable_v<slot>);

/// A key lies in one of so many slots in a row: the first that was free. None is ever taken out.
constexpr std::size_t probes_max = 8;

inline std::size_t slot_index(std::string_view key, std::size_t probe, std::size_t slots) {
  return (crc64{}.add(std::as_bytes(std::span{key})).value() + probe) % slots;
}

/// The owner's side. A peer of its runtime that knows the key or guesses it may read the whole
/// table. The table has a registration of its own, so the peer reads nothing beside it.
class table {
 public:
  table(cordma::runtime& rt, std::size_t slots)
      : slots_(slots),
        memory_{rt.memory(cordma::verbs::access::remote_read)
                    .register_external(std::as_writable_bytes(std::span{slots_}))} {}
  [[nodiscard]] cordma::remote_mr_slice name() const { return memory_.remote_slice(); }

  void put(std::string_view key, std::span<const std::byte> value) {
    check_length("a key", key.size(), slot::key_max);
    check_length("a value", value.size(), slot::value_max);
    for (std::size_t probe = 0; probe < probes_max; ++probe) {
      slot& s = slots_[slot_index(key, probe, slots_.size())];
      if (s.before == 0 || s.key() == key) return s.write(key, value);
    }
    throw std::runtime_error{"no slot is free for '" + std::string{key} + "'"};
  }

 private:
  static void check_length(const std::string& of, std::size_t length, std::size_t most) {
    if (length > most)
      throw std::length_error{of + " of " + std::to_string(length) + " bytes, where " +
                              std::to_string(most) + " is the most"};
  }
  std::vector<slot> slots_;
  cordma::local_mr memory_;
};

/// The side of a peer. The connection must outlive the reader. One `get` at a time.
class reader {
 public:
  /// The most READs of one slot. The pauses between them grow up to `pause_max`: an owner that was
  /// interrupted while it wrote wants time, not READs.
  static constexpr unsigned reads_max = 32;
  static constexpr std::chrono::milliseconds pause_max{10};

  reader(cordma::connection& conn, cordma::remote_mr_slice all)
      : conn_{conn}, all_{all}, copy_{conn.memory().allocate_zeroed(sizeof(slot), alignof(slot))} {
    if (slots() == 0) throw std::length_error{"there is no table"};
  }

  /// The value; nothing when there is none.
  cordma::task<std::optional<std::string>> get(std::string_view key) {
    for (std::size_t probe = 0; probe < probes_max; ++probe) {
      co_await read_whole(slot_index(key, probe, slots()), key);
      const slot& s = seen();
      if (s.before == 0) co_return std::nullopt;
      if (s.key() == key) {
        co_return std::string{reinterpret_cast<const char*>(s.value().data()), s.value().size()};
      }
    }
    co_return std::nullopt;
  }
  [[nodiscard]] unsigned torn() const { return torn_; }

 private:
  [[nodiscard]] std::size_t slots() const { return all_.size_bytes() / sizeof(slot); }
  [[nodiscard]] const slot& seen() const { return copy_.slice().as<slot>()[0]; }

  cordma::task<> read_whole(std::size_t index, std::string_view key) {
    std::chrono::nanoseconds pause = std::chrono::microseconds{1};
    for (unsigned reads = 0; reads < reads_max; ++reads) {
      co_await conn_.read(copy_, all_.slice(index * sizeof(slot), sizeof(slot)));
      if (seen().is_whole()) co_return;
      ++torn_;
      co_await cordma::sleep_for(pause);
      pause = std::min<std::chrono::nanoseconds>(2 * pause, pause_max);
    }
    throw std::runtime_error{"get '" + std::string{key} + "': not whole in " +
                             std::to_string(reads_max) + " reads: is its writer dead?"};
  }

  cordma::connection& conn_;
  cordma::remote_mr_slice all_;
  cordma::local_mr copy_;
  unsigned torn_ = 0;
};

}  // namespace key_value
