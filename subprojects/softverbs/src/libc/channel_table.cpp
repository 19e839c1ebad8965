#include "libc/channel_table.hpp"

#include "wire/no_cancellation.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <new>

namespace softverbs::libc {

constinit channel_table channels;

namespace {

/// All records that were ever made.
constinit std::atomic<channel_record*> newest{nullptr};

}  // namespace

bool channel_record::acquire() noexcept {
  std::uint32_t users = users_.load(std::memory_order_relaxed);
  while (users != 0 && users != in_change)
    if (users_.compare_exchange_weak(users, users + 1, std::memory_order_acquire,
                                     std::memory_order_relaxed))
      return true;
  return false;
}

void channel_record::release() noexcept {
  std::uint32_t users = users_.load(std::memory_order_relaxed);
  while (!users_.compare_exchange_weak(users, users == 1 ? in_change : users - 1,
                                       std::memory_order_acq_rel, std::memory_order_relaxed)) {
  }
  if (users != 1) return;
  const int saved = errno;
  {
    const no_cancellation until_closed;
    softverbs_cm_close(channel_);
  }
  users_.store(0, std::memory_order_release);
  errno = saved;
}

channel_record* make_record(softverbs_cm_channel* channel) noexcept {
  channel_record* record = newest.load(std::memory_order_acquire);
  for (; record != nullptr; record = record->next_) {
    std::uint32_t free = 0;
    if (record->users_.compare_exchange_strong(free, channel_record::in_change,
                                               std::memory_order_acquire))
      break;
  }
  while (record == nullptr) {
    channel_record* head = newest.load(std::memory_order_acquire);
    auto* const made = new (std::nothrow) channel_record{head};
    if (made == nullptr) return nullptr;
    if (newest.compare_exchange_strong(head, made, std::memory_order_acq_rel))
      record = made;
    else
      delete made;
  }
  record->channel_ = channel;
  record->users_.store(1, std::memory_order_release);
  return record;
}

channel_record* channel_table::acquire(int fd) const noexcept {
  const slot* const at = find(fd);
  if (at == nullptr) return nullptr;
  while (channel_record* const record = at->load(std::memory_order_acquire)) {
    if (!record->acquire()) continue;
    // The record may have become another descriptor's before acquire() added the user.
    if (at->load(std::memory_order_acquire) == record) return record;
    record->release();
  }
  return nullptr;
}

bool channel_table::reserve(int fd) noexcept {
  if (find(fd) != nullptr) return true;
  // Zeros are empty slots; most of them are never touched.
  void* const memory = ::mmap(nullptr, sizeof(page), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return false;
  page* none = nullptr;
  if (!pages_[static_cast<unsigned>(fd) >> page_bits].compare_exchange_strong(
          none, static_cast<page*>(memory), std::memory_order_acq_rel))
    ::munmap(memory, sizeof(page));
  return true;
}

void channel_table::put(int fd, channel_record* record) noexcept {
  channel_record* const before = find(fd)->exchange(record, std::memory_order_acq_rel);
  if (before != nullptr) before->release();
}

channel_record* channel_table::take(int fd) noexcept {
  slot* const at = find(fd);
  return at != nullptr ? at->exchange(nullptr, std::memory_order_acq_rel) : nullptr;
}

}  // namespace softverbs::libc
