#include "memory/guarded_copy.hpp"

#include "memory/guarded_access.hpp"

#include <signal.h>

#include <mutex>

// There when the program runs under AddressSanitizer.
extern "C" {
__attribute__((weak)) void* __asan_region_is_poisoned(void* begin, std::size_t bytes);
__attribute__((weak)) void __asan_report_load_n(void* address, std::size_t bytes);
__attribute__((weak)) void __asan_report_store_n(void* address, std::size_t bytes);
}

namespace softverbs {
namespace {

struct sigaction found_segv;  // The handlers that ours hands other faults to.
struct sigaction found_bus;

void on_fault(int signal, siginfo_t* info, void* ucontext) {
  // si_code <= 0: somebody sent the signal; no access faulted.
  if (info->si_code > 0 && guarded::escape(ucontext)) return;
  const struct sigaction& found = signal == SIGBUS ? found_bus : found_segv;
  if ((found.sa_flags & SA_SIGINFO) != 0) return found.sa_sigaction(signal, info, ucontext);
  if (found.sa_handler != SIG_DFL && found.sa_handler != SIG_IGN) return found.sa_handler(signal);
  if (found.sa_handler == SIG_IGN && info->si_code <= 0) return;
  // Back to the default: the access faults again and ends the process, with its own core.
  struct sigaction fatal{};
  fatal.sa_handler = SIG_DFL;
  ::sigaction(signal, &fatal, nullptr);
  if (info->si_code <= 0) ::raise(signal);
}

void install(int signal, struct sigaction& found) {
  struct sigaction ours{};
  ours.sa_sigaction = on_fault;
  ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  ::sigemptyset(&ours.sa_mask);
  // Read first: a fault in another thread must find `found` complete as soon as ours is installed.
  ::sigaction(signal, nullptr, &found);
  ::sigaction(signal, &ours, nullptr);
}

/// A device's access to memory that the program has freed is the program's bug: AddressSanitizer
/// shall report it as it reports the program's own.
void report_if_poisoned(const void* address, std::size_t bytes, bool store) noexcept {
  if (__asan_region_is_poisoned == nullptr || bytes == 0) return;
  void* bad = __asan_region_is_poisoned(const_cast<void*>(address), bytes);
  if (bad != nullptr) (store ? __asan_report_store_n : __asan_report_load_n)(bad, 1);
}

}  // namespace

void install_fault_guard() {
  static std::once_flag once;
  std::call_once(once, [] {
    install(SIGSEGV, found_segv);
    install(SIGBUS, found_bus);
  });
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
