#include "last_words.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <utility>

// A sanitizer's runtime has it.
extern "C" [[gnu::weak]] void __sanitizer_set_death_callback(
    void (*act)());  // NOLINT(bugprone-reserved-identifier)

namespace cordma::sim::detail {
namespace {

constexpr std::array deadly{SIGABRT, SIGALRM, SIGBUS, SIGFPE, SIGILL, SIGSEGV};
/// Time of the function before the process dies without it.
constexpr unsigned seconds_max = 10;
/// Memory for a handler's stack, since the program's own may be full.
constexpr std::size_t stack_bytes = 256 * 1024;

using act_function = void (*)(int signal);
constinit act_function last_act = nullptr;
constinit std::array<struct sigaction, deadly.size()> before{};
constinit volatile std::sig_atomic_t died_of = -1;  ///< -1: the process lives
alignas(16) std::array<char, stack_bytes> stack;

/// Calls the function, unless it is what has failed.
bool act(int signal) {
  if (died_of >= 0) return false;
  died_of = signal;
  ::alarm(seconds_max);
  last_act(signal);
  return true;
}

void on_signal(int signal) {
  if (!act(signal)) {
    const int first = died_of == 0 ? SIGABRT : int(died_of);
    std::signal(first, SIG_DFL);
    std::raise(first);
  }
  ::alarm(0);
  for (std::size_t n = 0; n < deadly.size(); ++n)
    if (deadly[n] == signal) ::sigaction(signal, &before[n], nullptr);
  std::raise(signal);
}

void on_sanitizer() {
  if (act(0)) ::alarm(0);
}

/// Returns whether the process has a handler of that signal. A sanitizer hides its own from
/// sigaction(2).
bool is_caught(int signal) {
  struct {
    void* handler;
    std::array<unsigned long, 7> rest;
  } now{};
  constexpr std::size_t set_bytes = 8;
  return ::syscall(SYS_rt_sigaction, signal, nullptr, &now, set_bytes) == 0 &&
         now.handler != nullptr;
}

}  // namespace

void before_death(act_function function) {
  if (std::exchange(last_act, function) != nullptr) return;
  stack_t used{};
  if (::sigaltstack(nullptr, &used) == 0 && (used.ss_flags & SS_DISABLE) != 0) {
    const stack_t own{.ss_sp = stack.data(), .ss_flags = 0, .ss_size = stack.size()};
    ::sigaltstack(&own, nullptr);
  }
  // A sanitizer's handler prints a report.
  const bool is_sanitized = __sanitizer_set_death_callback != nullptr;
  if (is_sanitized) __sanitizer_set_death_callback(&on_sanitizer);
  struct sigaction ours{};
  ours.sa_handler = &on_signal;
  ours.sa_flags = SA_ONSTACK | SA_NODEFER;
  for (std::size_t n = 0; n < deadly.size(); ++n)
    if (!is_sanitized || !is_caught(deadly[n])) ::sigaction(deadly[n], &ours, &before[n]);
}

std::string death_of(int signal) {
  if (signal == SIGALRM) return "it hung";
  const char* const name = ::sigabbrev_np(signal);
  std::string made = "it died of ";
  made += name == nullptr ? "signal " + std::to_string(signal) : std::string{"SIG"} + name;
  if (signal == SIGKILL) made += ", sent by somebody, or by the kernel for want of memory";
  return made;
}

}  // namespace cordma::sim::detail
