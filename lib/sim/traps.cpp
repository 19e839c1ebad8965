#include "traps.hpp"

#include "callers.hpp"
#include "host_state.hpp"
#include "world_state.hpp"

#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>
#include <sys/random.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <span>
#include <string>
#include <utility>

// The functions at the end take the place of libc's in a program that links cordma-sim.

namespace cordma::sim::detail {
namespace {

thread_local constinit host_state* stepped = nullptr;

/// Returns libc's function of that name.
template <class F>
F* next(const char* name) noexcept {
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

/// Returns true for the allocator, which asks the time to give memory back to the kernel.
bool is_allocator(const symbol_name& s) {
  return s.file.starts_with("libjemalloc") || s.function.starts_with("je_") ||
         s.function.starts_with("nstime_");
}

std::string caller(const void* returns_to) {
  const symbol_name* const found = caller_behind(returns_to);
  return found == nullptr ? "an unknown function" : found->text();
}

/// Returns the host whose step calls a function that it must not, and notes that; null: no step.
host_state* trapped(const char* call, const void* returns_to) {
  host_state* const host =
      std::exchange(stepped, nullptr);  // The code below is no part of the step.
  if (host == nullptr) return nullptr;
  if (!is_allocator(name_of(returns_to)))
    host->world().find("host " + host->name() + " calls " + call + " in " + caller(returns_to) +
                       ": a simulated program asks its runtime (docs/simulation.md)");
  stepped = host;
  return host;
}

}  // namespace

trap_scope::trap_scope(host_state& host) noexcept : outer_{std::exchange(stepped, &host)} {}

trap_scope::~trap_scope() { stepped = outer_; }

}  // namespace cordma::sim::detail

using cordma::sim::detail::host_state;
using cordma::sim::detail::next;
using cordma::sim::detail::trapped;

extern "C" {

int clock_gettime(clockid_t clock, struct timespec* now) noexcept {
  static auto* const real = next<int(clockid_t, timespec*)>("clock_gettime");
  const host_state* const host = trapped("clock_gettime", __builtin_return_address(0));
  if (host == nullptr) return real(clock, now);
  const auto at = host->now().time_since_epoch().count();
  *now = {at / 1'000'000'000, at % 1'000'000'000};
  return 0;
}

int gettimeofday(struct timeval* now, void* zone) noexcept {
  static auto* const real = next<int(timeval*, void*)>("gettimeofday");
  const host_state* const host = trapped("gettimeofday", __builtin_return_address(0));
  if (host == nullptr) return real(now, zone);
  const auto at = host->now().time_since_epoch().count() / 1000;
  *now = {at / 1'000'000, at % 1'000'000};
  return 0;
}

time_t time(time_t* now) noexcept {
  static auto* const real = next<time_t(time_t*)>("time");
  const host_state* const host = trapped("time", __builtin_return_address(0));
  if (host == nullptr) return real(now);
  const time_t at = host->now().time_since_epoch().count() / 1'000'000'000;
  if (now != nullptr) *now = at;
  return at;
}

int nanosleep(const struct timespec* span, struct timespec* left) {
  static auto* const real = next<int(const timespec*, timespec*)>("nanosleep");
  return trapped("nanosleep", __builtin_return_address(0)) == nullptr ? real(span, left) : 0;
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec* span,
                    struct timespec* left) {
  static auto* const real =
      next<int(clockid_t, int, const timespec*, timespec*)>("clock_nanosleep");
  return trapped("clock_nanosleep", __builtin_return_address(0)) == nullptr
             ? real(clock, flags, span, left)
             : 0;
}

unsigned sleep(unsigned seconds) {
  static auto* const real = next<unsigned(unsigned)>("sleep");
  return trapped("sleep", __builtin_return_address(0)) == nullptr ? real(seconds) : 0;
}

int usleep(useconds_t microseconds) {
  static auto* const real = next<int(useconds_t)>("usleep");
  return trapped("usleep", __builtin_return_address(0)) == nullptr ? real(microseconds) : 0;
}

ssize_t getrandom(void* bytes, size_t count, unsigned flags) {
  static auto* const real = next<ssize_t(void*, size_t, unsigned)>("getrandom");
  host_state* const host = trapped("getrandom", __builtin_return_address(0));
  if (host == nullptr) return real(bytes, count, flags);
  host->fill_random({static_cast<std::byte*>(bytes), count});
  return ssize_t(count);
}

int getentropy(void* bytes, size_t count) {
  static auto* const real = next<int(void*, size_t)>("getentropy");
  host_state* const host = trapped("getentropy", __builtin_return_address(0));
  if (host == nullptr) return real(bytes, count);
  host->fill_random({static_cast<std::byte*>(bytes), count});
  return 0;
}

// libstdc++'s std::random_device asks the processor, not the kernel. Weak: a program that links it
// statically keeps its own.
[[gnu::weak]] unsigned random_device_value(void* device) asm("_ZNSt13random_device9_M_getvalEv");
unsigned random_device_value(void* device) {
  static auto* const real = next<unsigned(void*)>("_ZNSt13random_device9_M_getvalEv");
  host_state* const host = trapped("std::random_device", __builtin_return_address(0));
  if (host == nullptr) return real(device);
  unsigned value = 0;
  host->fill_random(std::as_writable_bytes(std::span{&value, 1}));
  return value;
}

int getaddrinfo(const char* name, const char* service, const struct addrinfo* hints,
                struct addrinfo** found) {
  static auto* const real =
      next<int(const char*, const char*, const addrinfo*, addrinfo**)>("getaddrinfo");
  return trapped("getaddrinfo", __builtin_return_address(0)) == nullptr
             ? real(name, service, hints, found)
             : EAI_FAIL;
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
int pthread_create(pthread_t* made, const pthread_attr_t* with, void* (*run)(void*),
                   void* argument) noexcept {
  static auto* const real =
      next<int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create");
  return trapped("pthread_create", __builtin_return_address(0)) == nullptr
             ? real(made, with, run, argument)
             : EAGAIN;
}
#endif

}  // extern "C"
