#include "fetch.hpp"

#include "page.hpp"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <string_view>
#include <system_error>
#include <utility>

namespace top {
namespace {

constexpr std::size_t head_bytes_max = 16384;
constexpr std::size_t answer_bytes_max = page::bytes_max + head_bytes_max;

/// Returns the value of a field of the head; empty: it is missing.
std::string_view field_of(std::string_view head, std::string_view lower_case_name) {
  while (!head.empty()) {
    const std::string_view line = head.substr(0, head.find("\r\n"));
    head.remove_prefix(std::min(line.size() + 2, head.size()));
    const std::string_view name = line.substr(0, line.find(':'));
    const bool is_it = std::ranges::equal(name, lower_case_name, {},
                                          [](unsigned char c) { return char(std::tolower(c)); });
    if (!is_it || name.size() == line.size()) continue;
    const std::string_view value = line.substr(name.size() + 1);
    return value.substr(std::min(value.find_first_not_of(' '), value.size()));
  }
  return {};
}

std::optional<std::size_t> length_in(std::string_view head) {
  const std::string_view text = field_of(head, "content-length");
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc{}) return std::nullopt;
  return value;
}

}  // namespace

fetch::fetch(const target& from)
    : from_{from},
      fd_{::socket(from.address.data()->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)},
      request_{"GET " + from.path + " HTTP/1.0\r\nHost: " + from.host +
               "\r\nUser-Agent: cordma-top\r\nAccept: text/plain;version=0.0.4\r\n\r\n"} {
  if (!fd_.is_open()) {
    fail("socket", errno);
  } else if (::connect(fd_.get(), from.address.data(), from.address.size_bytes()) == 0) {
    on_connected();
  } else if (errno != EINPROGRESS) {
    fail("connect", errno);
  }
}

short fetch::events() const noexcept { return state_ == state::reading ? POLLIN : POLLOUT; }

void fetch::fail(std::string why) {
  state_ = state::failed;
  reason_ = std::move(why);
  fd_.reset();
}

void fetch::fail(const char* call, int errno_value) {
  fail(std::string{call} + ": " + std::generic_category().message(errno_value));
}

void fetch::give_up() {
  if (has_ended()) return;
  constexpr std::array<const char*, 3> steps{"it does not accept", "it does not read the request",
                                             "it does not answer in time"};
  fail(steps[std::size_t(state_)]);
}

void fetch::on_connected() {
  ucred peer{};
  socklen_t size_bytes = sizeof peer;
  if (from_.address.is_unix() &&
      ::getsockopt(fd_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size_bytes) == 0)
    peer_ = peer;
  state_ = state::sending;
}

void fetch::advance() {
  if (state_ == state::connecting) {
    int error = 0;
    socklen_t size_bytes = sizeof error;
    if (::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size_bytes) != 0) error = errno;
    if (error != 0) return fail("connect", error);
    on_connected();
  }
  if (state_ == state::sending) send();
  if (state_ == state::reading) receive();
}

void fetch::send() {
  while (sent_ < request_.size()) {
    const ssize_t n = ::send(fd_.get(), request_.data() + sent_, request_.size() - sent_,
                             MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0) return fail("send", errno);
    sent_ += std::size_t(n);
  }
  state_ = state::reading;
}

void fetch::receive() {
  std::array<char, 16384> chunk;
  // A server that sends without end leaves time for the others.
  for (unsigned reads = 0; reads < 64; ++reads) {
    const ssize_t n = ::recv(fd_.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0) return fail("recv", errno);
    if (n == 0) return take_answer();
    if (answer_.size() + std::size_t(n) > answer_bytes_max) return fail("its page is too long");
    answer_.append(chunk.data(), std::size_t(n));
  }
}

void fetch::take_answer() {
  const std::size_t end = answer_.find("\r\n\r\n");
  if (answer_.empty()) return fail("it answers nothing");
  if (!answer_.starts_with("HTTP/1.") || end == answer_.npos || end > head_bytes_max)
    return fail("it does not speak HTTP");
  const std::string_view head = std::string_view{answer_}.substr(0, end + 2);
  const std::string_view status = head.substr(0, head.find("\r\n"));
  const std::size_t blank = status.find(' ');
  if (blank == status.npos || !status.substr(blank + 1).starts_with("200"))
    return fail("it answers: " + std::string{status.substr(0, 80)});
  body_ = answer_.substr(end + 4);
  const std::optional<std::size_t> length = length_in(head);
  if (length && *length > body_.size()) return fail("its page is cut short");
  if (length) body_.resize(*length);
  state_ = state::done;
  fd_.reset();
}

}  // namespace top
