#include "libc/rdma_cm_file.hpp"

#include "cm/calls.hpp"
#include "libc/channel_table.hpp"
#include "libc/environment.hpp"
#include "libc/next.hpp"
#include "wire/no_cancellation.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <charconv>
#include <string_view>

namespace softverbs::libc {

namespace {

enum class server : int { undecided, kernel, softverbs };

/// The server of rdma_cm for this process. Set once.
constinit std::atomic<server> chosen{server::undecided};

int open_kernel(int flags) {
  return next<"open", int(const char*, int, ...)>()(rdma_cm_path, flags);
}

/// True for an error of open() that says nothing about the file.
bool is_passing(int error) noexcept {
  return error == EINTR || error == EMFILE || error == ENFILE || error == ENOMEM;
}

int open_channel(int flags) noexcept {
  const no_cancellation until_opened;
  const int fd = ::eventfd(0, EFD_SEMAPHORE | ((flags & O_CLOEXEC) != 0 ? EFD_CLOEXEC : 0) |
                                  ((flags & O_NONBLOCK) != 0 ? EFD_NONBLOCK : 0));
  if (fd < 0) return fd;
  softverbs_cm_channel* const channel = softverbs_cm_open(fd);
  int error = channel == nullptr ? errno : ENOMEM;
  if (channel != nullptr) {
    channel_record* const record = channels.reserve(fd) ? make_record(channel) : nullptr;
    if (record != nullptr) {
      channels.put(fd, record);
      return fd;
    }
    softverbs_cm_close(channel);
  }
  next<"close", int(int)>()(fd);
  errno = error;
  return -1;
}

}  // namespace

int open_rdma_cm(int flags) {
  if (is_off()) return open_kernel(flags);
  server answering = chosen.load(std::memory_order_relaxed);
  if (answering == server::undecided) {
    const int fd = environment_says("SOFTVERBS_CM", "soft") ? -1 : open_kernel(flags);
    if (fd < 0 && is_passing(errno)) return fd;
    const server wanted = fd >= 0 ? server::kernel : server::softverbs;
    if (chosen.compare_exchange_strong(answering, wanted, std::memory_order_relaxed))
      answering = wanted;
    if (fd >= 0 && answering == server::kernel) return fd;
    if (fd >= 0) next<"close", int(int)>()(fd);  // Another thread decided meanwhile.
  }
  return answering == server::kernel ? open_kernel(flags) : open_channel(flags);
}

dev_t rdma_cm_device() noexcept {
  constexpr unsigned misc_major = 10;
  constexpr std::string_view name = " rdma_cm\n";
  const int saved = errno;
  const no_cancellation until_closed;
  dev_t found = 0;
  const int fd = next<"open", int(const char*, int, ...)>()("/proc/misc", O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {
    char text[4096];  // Each driver has a line: "122 rdma_cm".
    const ssize_t bytes = ::read(fd, text, sizeof text);
    const std::string_view lines{text, bytes > 0 ? static_cast<std::size_t>(bytes) : 0};
    if (const std::size_t end = lines.find(name); end != std::string_view::npos) {
      const std::size_t start = lines.find_last_of(" \n", end - 1) + 1;
      unsigned minor_number = 0;
      if (std::from_chars(&text[start], &text[end], minor_number).ec == std::errc{})
        found = makedev(misc_major, minor_number);
    }
    next<"close", int(int)>()(fd);
  }
  errno = saved;
  return found;
}

}  // namespace softverbs::libc
