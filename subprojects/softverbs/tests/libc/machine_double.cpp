#include "machine_double.hpp"

#include "cm/calls.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <list>
#include <mutex>
#include <utility>

// Never freed before the end, so that a late call is seen.
struct softverbs_cm_channel {
  int copy = -1;
  std::atomic<bool> is_open{true};
  std::atomic<int> calls{0};
};

namespace {

std::atomic<int> open_count{0};
std::atomic<long> command_count{0};
std::atomic<int> misuse_count{0};
std::atomic<int> error_of_open{0};

/// All channels that were made, for a program that calls before constructors ran, too.
softverbs_cm_channel& make_channel() {
  static std::mutex mutex;
  static std::list<softverbs_cm_channel> all;
  const std::lock_guard lock{mutex};
  return all.emplace_back();
}

/// Stands for the machine's mutex. Calls hold it while they close a channel or serve a command,
/// unless the command waits.
std::mutex room;

struct call_in_progress {
  explicit call_in_progress(softverbs_cm_channel& on) : on_{on} { ++on.calls; }
  call_in_progress(const call_in_progress&) = delete;
  call_in_progress& operator=(const call_in_progress&) = delete;
  ~call_in_progress() { --on_.calls; }

 private:
  softverbs_cm_channel& on_;
};

ssize_t failed(int error) {
  errno = error;
  return -1;
}

}  // namespace

namespace machine {

int channels() { return open_count; }
long commands() { return command_count; }
int misuses() { return misuse_count; }
void fail_open(int error) { error_of_open = error; }

}  // namespace machine

extern "C" {

softverbs_cm_channel* softverbs_cm_open(int fd) {
  if (const int error = error_of_open.exchange(0); error != 0) {
    errno = error;
    return nullptr;
  }
  softverbs_cm_channel& made = make_channel();
  made.copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  ++open_count;
  return &made;
}

ssize_t softverbs_cm_write(softverbs_cm_channel* channel, const void* command, std::size_t bytes,
                           softverbs_cm_channel* (*channel_of)(int fd)) {
  const call_in_progress one{*channel};
  if (!channel->is_open) ++misuse_count;
  ++command_count;
  unsigned char what = machine::refuse;
  if (bytes >= 1) std::memcpy(&what, command, 1);
  std::uint64_t event = 1;
  const auto done = static_cast<ssize_t>(bytes);
  switch (what) {
    case machine::nothing: return done;
    case machine::raise:
      return ::write(channel->copy, &event, sizeof event) == sizeof event ? done : -1;
    case machine::get:
      return ::read(channel->copy, &event, sizeof event) == sizeof event ? done : -1;
    case machine::signal: {
      const std::lock_guard lock{room};
      return std::raise(machine::signal_number) == 0 ? done : -1;
    }
    case machine::migrate: {
      int named = -1;
      if (bytes < 1 + sizeof named) return failed(EINVAL);
      std::memcpy(&named, static_cast<const char*>(command) + 1, sizeof named);
      const std::lock_guard lock{room};
      softverbs_cm_channel* const found = channel_of(named);
      if (found == nullptr) return failed(EBADF);
      // The machine may begin anew.
      if (!found->is_open || channel_of(named) != found) ++misuse_count;
      return done;
    }
    default: return failed(EPROTO);
  }
}

void softverbs_cm_close(softverbs_cm_channel* channel) {
  const std::lock_guard lock{room};
  if (channel->calls != 0 || !channel->is_open.exchange(false)) ++misuse_count;
  ::close(std::exchange(channel->copy, -1));
  --open_count;
}

}  // extern "C"
