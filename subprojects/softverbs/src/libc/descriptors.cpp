#include "libc/channel_table.hpp"
#include "libc/next.hpp"
#include "wire/no_cancellation.hpp"

#include <fcntl.h>
#include <linux/close_range.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdarg>

// The functions that close or copy descriptors: the table follows them. Labels give the functions
// their names, as in files.cpp.

using namespace softverbs::libc;

namespace {

/// The process whose descriptors the table describes.
constinit std::atomic<pid_t> owner{0};

void become_owner() noexcept { owner.store(::getpid(), std::memory_order_relaxed); }

[[gnu::constructor]] void watch_forks() noexcept {
  become_owner();
  ::pthread_atfork(nullptr, nullptr, become_owner);
}

/// A child of vfork() has the parent's memory, but descriptors of its own: what it does to them
/// leaves the table alone.
bool has_own_descriptors() noexcept {
  const pid_t known = owner.load(std::memory_order_relaxed);
  return known != 0 && known != ::getpid();
}

int close_next(int fd) { return next<"close", int(int)>()(fd); }

/// Closes a channel's descriptor.
int close_channel(int fd) noexcept {
  const softverbs::no_cancellation until_closed;
  if (has_own_descriptors()) return close_next(fd);
  // The table loses the descriptor first: once closed, the number may be another thread's.
  channel_record* const record = channels.take(fd);
  const int result = close_next(fd);
  if (record != nullptr) record->release();
  return result;
}

void close_channels(unsigned first, unsigned last) noexcept {
  if (!has_own_descriptors()) channels.for_each(first, last, close_channel);
}

/// A copy of a channel's descriptor, at a number that `make` gets from the kernel.
template <class Make>
int copy(int from, Make make) {
  channel_use use{from};
  const int to = make();
  if (to < 0 || !use || has_own_descriptors()) return to;
  if (channels.reserve(to)) {
    channels.put(to, use.take());
    return to;
  }
  close_next(to);
  errno = ENOMEM;
  return -1;
}

/// A copy at the number `to`, which may be a channel's before and after.
template <class Make>
int replace(int from, int to, Make make) noexcept {
  if (from == to || to < 0 || (!channels.has(from) && !channels.has(to)) || has_own_descriptors())
    return make();
  channel_use use{from};
  if (!channels.reserve(to)) {
    errno = ENOMEM;
    return -1;
  }
  const int result = make();
  if (result >= 0) channels.put(to, use.take());
  return result;
}

template <function_name Name>
int control(int fd, int command, void* argument) {
  const auto make = [=] { return next<Name, int(int, int, ...)>()(fd, command, argument); };
  const bool copies = command == F_DUPFD || command == F_DUPFD_CLOEXEC;
  return copies && channels.has(fd) ? copy(fd, make) : make();
}

}  // namespace

extern "C" {

int sv_close(int fd) __asm__("close");
int sv_dup(int fd) noexcept __asm__("dup");
int sv_dup2(int from, int to) noexcept __asm__("dup2");
int sv_dup3(int from, int to, int flags) noexcept __asm__("dup3");
int sv_fcntl(int fd, int command, ...) __asm__("fcntl");
int sv_fcntl64(int fd, int command, ...) __asm__("fcntl64");
int sv_close_range(unsigned first, unsigned last, int flags) noexcept __asm__("close_range");
void sv_closefrom(int first) noexcept __asm__("closefrom");

int sv_close(int fd) {
  if (!channels.has(fd)) return close_next(fd);
  ::pthread_testcancel();  // A close that is cancelled closes nothing.
  return close_channel(fd);
}

int sv_dup(int fd) noexcept {
  const auto make = [=] { return next<"dup", int(int)>()(fd); };
  return channels.has(fd) ? copy(fd, make) : make();
}
int sv_dup2(int from, int to) noexcept {
  return replace(from, to, [=] { return next<"dup2", int(int, int)>()(from, to); });
}
int sv_dup3(int from, int to, int flags) noexcept {
  return replace(from, to, [=] { return next<"dup3", int(int, int, int)>()(from, to, flags); });
}

// Reads the argument, whatever the command takes, as libc does.
int sv_fcntl(int fd, int command, ...) {
  va_list rest;
  va_start(rest, command);
  void* const argument = va_arg(rest, void*);
  va_end(rest);
  return control<"fcntl">(fd, command, argument);
}
int sv_fcntl64(int fd, int command, ...) {
  va_list rest;
  va_start(rest, command);
  void* const argument = va_arg(rest, void*);
  va_end(rest);
  return control<"fcntl64">(fd, command, argument);
}

int sv_close_range(unsigned first, unsigned last, int flags) noexcept {
  if ((flags & ~int{CLOSE_RANGE_UNSHARE}) == 0) close_channels(first, last);
  return next<"close_range", int(unsigned, unsigned, int)>()(first, last, flags);
}
void sv_closefrom(int first) noexcept {
  close_channels(first > 0 ? static_cast<unsigned>(first) : 0, ~0U);
  next<"closefrom", void(int)>()(first);
}

}  // extern "C"
