#pragma once

#include <cordma/memory/mr_allocator.hpp>

#include <catch2/catch.hpp>

#include <sys/mman.h>

#include <csignal>
#include <cstddef>
#include <functional>
#include <span>
#include <utility>

namespace cordma::test {

/// Registered memory that calls a function when soft0 comes to one of its pages, amid a message.
/// soft0 copies by the processor, which the page stops. Made after the device is open, whose
/// handler of signals serves all other memory. \thread the trap's: the one that copies.
class trapped_memory {
 public:
  static constexpr std::size_t page = 4096;

  trapped_memory(mr_allocator& in, std::size_t size_bytes)
      : size_{size_bytes},
        at_{static_cast<std::byte*>(
            ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))} {
    REQUIRE(at_ != MAP_FAILED);
    memory_ = in.register_external(std::span{at_, size_});
  }
  trapped_memory(const trapped_memory&) = delete;
  trapped_memory& operator=(const trapped_memory&) = delete;
  ~trapped_memory() {
    if (armed_ == this) disarm();
    memory_.reset();
    ::munmap(at_, size_);
  }
  [[nodiscard]] local_mr& memory() noexcept { return memory_; }

  /// Calls `then` once, before the byte at `offset` is read.
  void arm(std::size_t offset, std::function<void()> then) {
    REQUIRE(armed_ == nullptr);
    then_ = std::move(then);
    trap_ = at_ + offset / page * page;
    struct sigaction ours{};
    ours.sa_sigaction = on_fault;
    ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    ::sigaction(SIGSEGV, &ours, &found_);
    armed_ = this;
    REQUIRE(::mprotect(trap_, page, PROT_NONE) == 0);
  }

 private:
  static void on_fault(int signal, siginfo_t* info, void* context) {
    trapped_memory& self = *armed_;
    auto* const at = static_cast<std::byte*>(info->si_addr);
    if (self.trap_ != nullptr && at >= self.trap_ && at < self.trap_ + page) {
      ::mprotect(std::exchange(self.trap_, nullptr), page, PROT_READ | PROT_WRITE);
      self.then_();
    } else if ((self.found_.sa_flags & SA_SIGINFO) != 0) {
      self.found_.sa_sigaction(signal, info, context);
    } else {
      ::sigaction(SIGSEGV, &self.found_, nullptr);  // The access faults again.
    }
  }
  void disarm() noexcept {
    ::sigaction(SIGSEGV, &found_, nullptr);
    if (trap_ != nullptr) ::mprotect(trap_, page, PROT_READ | PROT_WRITE);
    armed_ = nullptr;
  }

  static inline trapped_memory* armed_ = nullptr;
  std::size_t size_;
  std::byte* at_;
  local_mr memory_;
  std::byte* trap_ = nullptr;
  std::function<void()> then_;
  struct sigaction found_{};
};

}  // namespace cordma::test
