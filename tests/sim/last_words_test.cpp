#include "sim/last_words.hpp"

#include "support/skip.hpp"
#include "support/thread_sanitizer.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <array>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>

// A sanitizer's runtime has it.
extern "C" [[gnu::weak]] void __sanitizer_set_death_callback(
    void (*act)());  // NOLINT(bugprone-reserved-identifier)

using namespace cordma;
using sim::detail::before_death;
using sim::detail::bounded_text;
using sim::detail::death_of;

namespace {

std::array<int, 2> words{};  ///< a pipe

struct last_of_child {
  int status = 0;
  std::string words;
};

/// Returns how a child dies that calls `f`, and what its last function wrote.
last_of_child die(void (*last)(int signal), void (*f)()) {
  REQUIRE(::pipe(words.data()) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    for (const int caught : {SIGABRT, SIGALRM, SIGBUS, SIGFPE, SIGILL, SIGSEGV})
      ::signal(caught, SIG_DFL);
    const stack_t none{.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
    ::sigaltstack(&none, nullptr);  // The test program has one.
    before_death(last);
    f();
    ::_exit(0);
  }
  ::close(words[1]);
  last_of_child made;
  REQUIRE(::waitpid(child, &made.status, 0) == child);
  for (char one = 0; ::read(words[0], &one, 1) == 1;) made.words += one;
  ::close(words[0]);
  return made;
}

void say(std::string_view text) {
  if (::write(words[1], text.data(), text.size()) != ssize_t(text.size())) ::_exit(9);
}

void say_signal(int signal) {
  const std::array<char, 2> digits{char('0' + signal / 10), char('0' + signal % 10)};
  say({digits.data(), digits.size()});
}

bool died_of(const last_of_child& child, int signal) {
  return WIFSIGNALED(child.status) && WTERMSIG(child.status) == signal;
}

void die_again(int signal) {
  say_signal(signal);
  ::raise(SIGFPE);
}

void abort_again(int signal) {
  say_signal(signal);
  std::abort();
}

/// Needs more and more of the stack.
__attribute__((no_sanitize("address"))) unsigned use_stack(unsigned depth) {
  std::array<volatile unsigned, 1024> more{};
  more[0] = depth;
  return depth == UINT_MAX ? 0 : use_stack(depth + 1) + more[0];
}

}  // namespace

TEST_CASE("a process that dies says its last words once, and dies as it would have", "[sim]") {
  for (const int signal : {SIGABRT, SIGALRM, SIGBUS, SIGFPE, SIGILL, SIGSEGV}) {
    INFO(signal);
    static int raised = 0;
    raised = signal;
    const last_of_child child = die(&say_signal, [] { ::raise(raised); });
    CHECK(died_of(child, signal));
    CHECK(std::stoi(child.words) == signal);
    CHECK(child.words.size() == 2);
  }
}

TEST_CASE("a process that ends by itself has no last words", "[sim]") {
  const last_of_child child = die(&say_signal, [] {});
  CHECK(child.status == 0);
  CHECK(child.words == "");
}

TEST_CASE("last words that fail end by the first fault", "[sim]") {
  if (CORDMA_TEST_THREAD_SANITIZER != 0) CORDMA_SKIP("a handler's own signal waits for its end");
  for (void (*last)(int) : {&die_again, &abort_again}) {
    const last_of_child child = die(last, [] { std::abort(); });
    CHECK(died_of(child, SIGABRT));
    CHECK(child.words == "06");
  }
}

TEST_CASE("the program's own handler comes after the last words", "[sim]") {
  const last_of_child child = die(nullptr, [] {
    ::signal(SIGABRT, [](int) {
      say("then the program's");
      ::_exit(5);
    });
    before_death(&say_signal);
    std::abort();
  });
  CHECK(WEXITSTATUS(child.status) == 5);
  // A handler that is there first is a sanitizer's, if there is one.
  const bool is_sanitized = __sanitizer_set_death_callback != nullptr;
  CHECK(child.words == (is_sanitized ? "then the program's" : "06then the program's"));
}

TEST_CASE("last words need no room on a stack that is full", "[sim]") {
  const last_of_child child = die(&say_signal, [] {
    if (use_stack(0) == 1) ::_exit(8);
  });
  CHECK(died_of(child, SIGSEGV));
  CHECK(child.words == "11");
}

TEST_CASE("a death has the signal's name", "[sim]") {
  CHECK(death_of(SIGSEGV) == "it died of SIGSEGV");
  CHECK(death_of(SIGALRM) == "it hung");
  CHECK(death_of(SIGRTMIN + 3) == "it died of signal " + std::to_string(SIGRTMIN + 3));
}

TEST_CASE("a text takes what it has room for", "[sim]") {
  std::array<char, 6> room{};
  room.fill('x');
  bounded_text text{room};
  CHECK(room[0] == 0);
  text += std::string_view{"abc"};
  CHECK(std::string_view{room.data()} == "abc");
  text += std::string_view{"defg"};
  text += std::string_view{"h"};
  CHECK(std::string_view{room.data()} == "abcde");
}
