#include "rdma_cm.hpp"
#include "sanitized.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <stdexcept>

// A signal handler may use descriptors at any moment, even of a thread that is inside malloc or
// inside a channel's command.

namespace {

std::atomic<int> foreign{-1};  ///< the descriptor that the handler uses
std::atomic<int> good_signals{0};
std::atomic<int> bad_signals{0};
std::atomic<bool> is_in_handler{false};
std::atomic<long> allocations_in_handler{0};

bool is_closed(int fd) {
  errno = 0;
  const bool no_write = ::write(fd, "x", 1) == -1 && errno == EBADF;
  errno = 0;
  return ::close(fd) == -1 && errno == EBADF && no_write;
}

bool use_descriptors(int from) {
  if (::write(from, "x", 1) != 1) return false;
  const std::array copies{::dup(from), ::fcntl(from, F_DUPFD_CLOEXEC, 0)};
  if (copies[0] < 0 || copies[1] < 0) return false;
  bool good = ::dup2(from, copies[0]) == copies[0] &&
              ::dup3(from, copies[1], O_CLOEXEC) == copies[1] &&
              (::fcntl(copies[1], F_GETFD) & FD_CLOEXEC) != 0;
  for (const int copy : copies) good = ::close(copy) == 0 && is_closed(copy) && good;
  return good;
}

void on_signal(int) {
  const int saved = errno;
  is_in_handler = true;
  const bool good = use_descriptors(foreign);
  is_in_handler = false;
  ++(good ? good_signals : bad_signals);
  errno = saved;
}

/// While it lives, SIGUSR1 has its handler, which uses the pipe.
class signals {
 public:
  signals() {
    if (::pipe2(ends_.data(), O_CLOEXEC) != 0) throw std::runtime_error{"pipe2"};
    foreign = ends_[1];
    good_signals = bad_signals = 0;
    allocations_in_handler = 0;
    before_ = std::signal(machine::signal_number, on_signal);
  }
  signals(const signals&) = delete;
  signals& operator=(const signals&) = delete;
  ~signals() {
    std::signal(machine::signal_number, before_);
    for (const int end : ends_) ::close(end);
  }

  [[nodiscard]] char next_byte() const {
    char byte = 0;
    return ::read(ends_[0], &byte, 1) == 1 ? byte : '\0';
  }

 private:
  std::array<int, 2> ends_{-1, -1};
  void (*before_)(int) = SIG_DFL;
};

}  // namespace

#ifndef SOFTVERBS_SANITIZED  // ThreadSanitizer says itself which calls are unsafe.
namespace {

thread_local bool raises_in_malloc = false;

void note_allocation() {
  if (is_in_handler) ++allocations_in_handler;
  if (!raises_in_malloc) return;
  raises_in_malloc = false;
  std::raise(machine::signal_number);
}

}  // namespace

extern "C" {

void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);

// Libraries call these, as the program does.
void* malloc(std::size_t bytes) noexcept {
  note_allocation();
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) noexcept {
  note_allocation();
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, std::size_t bytes) noexcept {
  note_allocation();
  return __libc_realloc(memory, bytes);
}

}  // extern "C"

TEST_CASE("a signal inside malloc may use foreign descriptors, which allocate nothing", "[libc]") {
  const signals handled;
  raises_in_malloc = true;
  const std::unique_ptr<void, void (*)(void*)> memory{std::malloc(1), std::free};
  CHECK(memory != nullptr);
  CHECK_FALSE(raises_in_malloc);
  CHECK(good_signals == 1);
  CHECK(bad_signals == 0);
  CHECK(allocations_in_handler == 0);
  CHECK(handled.next_byte() == 'x');
}
#endif

TEST_CASE("a signal inside a channel's command may use foreign descriptors", "[libc]") {
  const int fd = rdma_cm::open();
  {
    const signals handled;
    CHECK(rdma_cm::command(fd, machine::signal));
    CHECK(good_signals == 1);
    CHECK(bad_signals == 0);
    CHECK(allocations_in_handler == 0);
    CHECK(handled.next_byte() == 'x');
  }
  CHECK(rdma_cm::is_channel(fd));
  CHECK(::close(fd) == 0);
  CHECK(machine::misuses() == 0);
}
