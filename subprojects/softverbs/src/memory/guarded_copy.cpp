#include "memory/guarded_copy.hpp"

#include "memory/guarded_access.hpp"

#include <signal.h>

#include <mutex>

// Defined if the program runs under AddressSanitizer.
extern "C" {
__attribute__((weak)) void* __asan_region_is_poisoned(void* begin, std::size_t bytes);
__attribute__((weak)) void __asan_report_load_n(void* address, std::size_t bytes);
__attribute__((weak)) void __asan_report_store_n(void* address, std::size_t bytes);
}

namespace softverbs {
namespace {

struct sigaction found_segv;  // The previous handlers, for all other faults.
struct sigaction found_bus;
// Initial-exec: the first use in a signal handler must not allocate memory.
[[gnu::tls_model("initial-exec")]] thread_local bool handing_on = false;

/// Restores the default: the access faults again and ends the process with a core of its own.
void die(int signal, bool sent) {
  struct sigaction fatal{};
  fatal.sa_handler = SIG_DFL;
  ::sigaction(signal, &fatal, nullptr);
  if (sent) ::raise(signal);
}

void on_fault(int signal, siginfo_t* info, void* ucontext) {
  const bool sent = info->si_code <= 0;  // A process sent the signal: no access faulted.
  if (!sent && guarded::escape(ucontext)) return;
  const struct sigaction found = signal == SIGBUS ? found_bus : found_segv;
  if (found.sa_handler == SIG_IGN && sent) return;
  // A previous handler may restore the handler that it found, ours, and raise the signal.
  if (found.sa_handler == SIG_DFL || found.sa_handler == SIG_IGN || (sent && handing_on))
    return die(signal, sent);
  handing_on = true;
  if ((found.sa_flags & SA_SIGINFO) != 0)
    found.sa_sigaction(signal, info, ucontext);
  else
    found.sa_handler(signal);
  handing_on = false;
}

void install(int signal, struct sigaction& found) {
  struct sigaction now{};
  ::sigaction(signal, nullptr, &now);
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == on_fault) return;
  // Read before ours is installed: a fault in another thread must find the value.
  found = now;
  struct sigaction ours{};
  ours.sa_sigaction = on_fault;
  ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  ::sigemptyset(&ours.sa_mask);
  ::sigaction(signal, &ours, nullptr);
}

/// Reports an access to freed memory to AddressSanitizer: such an access of the device is a bug of
/// the program.
void report_if_poisoned(const void* address, std::size_t bytes, bool store) noexcept {
  if (__asan_region_is_poisoned == nullptr || bytes == 0) return;
  void* bad = __asan_region_is_poisoned(const_cast<void*>(address), bytes);
  if (bad != nullptr) (store ? __asan_report_store_n : __asan_report_load_n)(bad, 1);
}

}  // namespace

void install_fault_guard() {
  static std::mutex mutex;
  const std::lock_guard lock{mutex};
  install(SIGSEGV, found_segv);
  install(SIGBUS, found_bus);
}

bool guarded_copy(void* to, const void* from, std::size_t bytes) noexcept {
  report_if_poisoned(from, bytes, false);
  report_if_poisoned(to, bytes, true);
  return guarded::copy(to, from, bytes);
}

bool guarded_compare_swap(void* address, std::uint64_t compare, std::uint64_t swap,
                          std::uint64_t& previous) noexcept {
  report_if_poisoned(address, sizeof swap, true);
  return guarded::compare_swap(address, compare, swap, previous);
}

bool guarded_fetch_add(void* address, std::uint64_t add, std::uint64_t& previous) noexcept {
  report_if_poisoned(address, sizeof add, true);
  return guarded::fetch_add(address, add, previous);
}

}  // namespace softverbs
