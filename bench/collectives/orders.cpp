#include "orders.hpp"

#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <system_error>

namespace bench {
namespace {

/// Returns the number in the first of both variables that is set.
unsigned number_of(const char* name, const char* of_open_mpi) {
  const char* text = std::getenv(name);                  // NOLINT(concurrency-mt-unsafe)
  if (text == nullptr) text = std::getenv(of_open_mpi);  // NOLINT(concurrency-mt-unsafe)
  if (text == nullptr) throw std::runtime_error{std::string{name} + " is not set"};
  return unsigned(std::strtoul(text, nullptr, 10));
}

unsigned processors() { return unsigned(::sysconf(_SC_NPROCESSORS_ONLN)); }

void check(bool is_well, const char* call) {
  if (!is_well) throw std::system_error{errno, std::generic_category(), call};
}

}  // namespace

rank_of begin_rank() {
  const rank_of mine{number_of("RANK", "OMPI_COMM_WORLD_RANK"),
                     number_of("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE")};
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(mine.rank % processors(), &one);
  check(::sched_setaffinity(0, sizeof one, &one) == 0, "sched_setaffinity");
  return mine;
}

bool has_processor_each(const rank_of& mine) { return mine.size <= processors(); }

order_socket::order_socket(unsigned rank)
    : fd_{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)} {
  check(fd_ >= 0, "socket");
  const char* const path = std::getenv("COLLECTIVES_ORDERS");  // NOLINT(concurrency-mt-unsafe)
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path == nullptr || std::strlen(path) >= sizeof address.sun_path)
    throw std::runtime_error{"COLLECTIVES_ORDERS names no socket"};
  std::strcpy(address.sun_path, path);  // NOLINT(clang-analyzer-security.insecureAPI.strcpy)
  check(::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0, path);
  const std::string hello = std::to_string(rank);
  check(::send(fd_, hello.data(), hello.size(), 0) == ssize_t(hello.size()), "send");
}

order_socket::~order_socket() { ::close(fd_); }

std::optional<order> order_socket::next() {
  std::array<char, 128> text{};
  const ssize_t size = ::recv(fd_, text.data(), text.size(), 0);
  check(size >= 0, "recv");
  if (size == 0) return std::nullopt;
  std::istringstream words{std::string{text.data(), std::size_t(size)}};
  order next;
  if (!(words >> next.operation >> next.bytes >> next.count) || next.bytes > collective_bytes_max)
    throw std::runtime_error{"this is no order: " + words.str()};
  return next;
}

void order_socket::answer(std::optional<double> seconds) {
  std::array<char, 32> text{'-'};
  const int size = seconds ? std::snprintf(text.data(), text.size(), "%.9f", *seconds) : 1;
  check(::send(fd_, text.data(), std::size_t(size), MSG_NOSIGNAL) == size, "send");
}

void serve_orders(unsigned rank, const std::function<collective(const order&)>& prepare,
                  const collective& barrier) {
  order_socket driver{rank};
  while (const std::optional<order> asked = driver.next()) {
    const collective once = prepare(*asked);
    if (!once) {
      driver.answer(std::nullopt);
      continue;
    }
    once();
    barrier();
    const auto start = std::chrono::steady_clock::now();
    for (std::uint64_t i = 0; i < asked->count; ++i) once();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    driver.answer(took.count());
  }
}

}  // namespace bench
