#pragma once

#include "cm/calls.hpp"

#include <atomic>
#include <cstdint>
#include <utility>

// The table of this process's descriptors that are channels of softverbs' rdma_cm.

namespace softverbs::libc {

/// A channel, and how many use it: descriptors, and calls under way. Never freed, only used again:
/// a thread that found it in the table may come late.
class channel_record {
 public:
  explicit channel_record(channel_record* next) noexcept : next_{next} {}

  /// Adds a user; false if the channel has none.
  [[nodiscard]] bool acquire() noexcept;
  /// Removes a user. The last one closes the channel. Keeps errno.
  void release() noexcept;
  [[nodiscard]] softverbs_cm_channel* channel() const noexcept { return channel_; }

 private:
  friend channel_record* make_record(softverbs_cm_channel*) noexcept;

  /// `users_` of a record that one thread fills, or whose channel it closes.
  static constexpr std::uint32_t in_change = ~std::uint32_t{0};

  std::atomic<std::uint32_t> users_{in_change};  // 0: free. Publishes `channel_`.
  softverbs_cm_channel* channel_ = nullptr;
  channel_record* const next_;
};

/// A record with one user. Null: out of memory.
[[nodiscard]] channel_record* make_record(softverbs_cm_channel*) noexcept;

/// A table of two levels, indexed by descriptor. Usable before any constructor ran; look-ups take
/// no lock.
class channel_table {
 public:
  [[nodiscard]] bool has(int fd) const noexcept {
    const slot* const at = find(fd);
    return at != nullptr && at->load(std::memory_order_acquire) != nullptr;
  }
  /// The record of a descriptor, with one user more. Null: it is no channel.
  [[nodiscard]] channel_record* acquire(int fd) const noexcept;
  /// Makes room for a descriptor. False: out of memory.
  [[nodiscard]] bool reserve(int fd) noexcept;
  /// The descriptor, which has room, is a channel from now on, or none (null). Takes over a user of
  /// `record`; releases what was there.
  void put(int fd, channel_record* record) noexcept;
  /// Takes the descriptor out of the table; its user of the record passes to the caller.
  [[nodiscard]] channel_record* take(int fd) noexcept;
  /// Calls `visit` with each channel's descriptor in [first, last].
  template <class Visit>
  void for_each(unsigned first, unsigned last, Visit visit) noexcept {
    for (std::uint64_t fd = first; fd <= last && (fd >> page_bits) < page_count; ++fd) {
      if (pages_[fd >> page_bits].load(std::memory_order_acquire) == nullptr)
        fd |= page_slots - 1;
      else if (has(static_cast<int>(fd)))
        visit(static_cast<int>(fd));
    }
  }

 private:
  using slot = std::atomic<channel_record*>;
  static constexpr unsigned page_bits = 16;
  static constexpr unsigned page_slots = 1U << page_bits;
  static constexpr unsigned page_count = 1U << 15;  // For every number that an int can hold.
  struct page {
    slot slots[page_slots];
  };

  [[nodiscard]] slot* find(int fd) const noexcept {
    const auto number = static_cast<unsigned>(fd);
    if ((number >> page_bits) >= page_count) return nullptr;
    page* const in = pages_[number >> page_bits].load(std::memory_order_acquire);
    return in != nullptr ? &in->slots[number % page_slots] : nullptr;
  }

  std::atomic<page*> pages_[page_count]{};  // Each page is set once, and stays.
};

/// The table of this process.
extern constinit channel_table channels;

/// A user of a descriptor's channel, for the time of a call.
class channel_use {
 public:
  explicit channel_use(int fd) noexcept : record_{channels.acquire(fd)} {}
  channel_use(const channel_use&) = delete;
  channel_use& operator=(const channel_use&) = delete;
  ~channel_use() {
    if (record_ != nullptr) record_->release();
  }

  [[nodiscard]] explicit operator bool() const noexcept { return record_ != nullptr; }
  [[nodiscard]] softverbs_cm_channel* channel() const noexcept { return record_->channel(); }
  /// The record, whose user passes to the caller; null if the descriptor was no channel.
  [[nodiscard]] channel_record* take() noexcept { return std::exchange(record_, nullptr); }

 private:
  channel_record* record_;
};

}  // namespace softverbs::libc
