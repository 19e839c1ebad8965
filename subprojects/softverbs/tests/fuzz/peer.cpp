#include "fuzz/peer.hpp"

#include "fuzz/arena.hpp"
#include "fuzz/script.hpp"
#include "link/listeners.hpp"
#include "link/local_listener.hpp"

#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

namespace softverbs::fuzz {

namespace {

void put_word(std::byte* at, std::uint64_t word) noexcept {
  __atomic_store_n(reinterpret_cast<std::uint64_t*>(at), word, __ATOMIC_RELAXED);
}

void say(int socket, const void* words, std::size_t bytes, int file) noexcept {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  iovec part{const_cast<void*>(words), bytes};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (file >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &file, sizeof file);
  }
  (void)!::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

// ---- a link

bool hostile_link::attach(unique_fd socket, int file, bool opener) noexcept {
  if (!memory_.reserve() || !memory_.map(file, opener)) return false;
  socket_ = std::move(socket);
  out_ = memory_.out();
  in_ = memory_.in();
  tail_ = head_ = 0;
  return true;
}

bool hostile_link::ended() noexcept {
  std::array<char, 64> bells{};
  for (;;) {
    const ssize_t bytes = ::recv(socket_.get(), bells.data(), bells.size(), MSG_DONTWAIT);
    if (bytes == 0 || (bytes < 0 && errno != EAGAIN && errno != EINTR)) return true;
    if (bytes < 0) return false;
  }
}

void hostile_link::ring_doorbell() const noexcept {
  (void)!::send(socket_.get(), "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool hostile_link::has_room() const noexcept {
  constexpr std::uint64_t most = ring_bytes - 2 * frame_bytes(segment_bytes_max);
  return tail_ - out_.control->head.load() <= most;
}

void hostile_link::put(const frame_header& header, std::uint64_t pattern) noexcept {
  std::byte* destination = next_frame();
  std::array<std::uint64_t, sizeof header / sizeof(std::uint64_t)> words;
  std::memcpy(words.data(), &header, sizeof header);
  for (std::size_t i = 0; i < words.size(); ++i) put_word(destination + i * 8, words[i]);
  // A length that lies gets no more bytes than a frame may have.
  const std::size_t bytes = frame_bytes(header.payload_bytes % (segment_bytes_max + 1));
  for (std::size_t i = sizeof header; i < bytes; i += 8) put_word(destination + i, pattern);
  publish(tail_ + bytes);
}

void hostile_link::publish(std::uint64_t tail) noexcept {
  tail_ = tail;
  out_.control->tail.store(tail);
}

void hostile_link::take_all() noexcept {
  const std::uint64_t tail = in_.control->tail.load();
  if (tail - head_ <= ring_bytes)
    arena::check_leak(in_.data + (head_ & ring_mask), static_cast<std::size_t>(tail - head_));
  head_ = tail;
  in_.control->head.store(head_);
}

// ---- listeners

peer::peer(std::uint16_t target) : target_{target} {
  while (!(listener_ = open_local_listener(slot_)))
    must(++slot_ < process_slots, "a slot for the peer");
}

unique_fd peer::connect() const noexcept {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const int length =
      std::snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "softverbs.%u", unsigned{target_});
  unique_fd socket{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
  const auto size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1) + static_cast<socklen_t>(length);
  must(::connect(socket.get(), reinterpret_cast<sockaddr*>(&name), size) == 0, "connect");
  return socket;
}

void peer::come() noexcept {
  constexpr int waits_max = 1 << 22;
  const unique_fd file{ring_memory::create_file()};
  unique_fd socket = connect();
  hello words;
  words.slot = slot_;
  say(socket.get(), &words, sizeof words, file.get());
  must(in.attach(std::move(socket), file.get(), true), "memory for a link");
  // The first doorbell request of the victim shows that its link is up.
  for (int n = 0; in.out().doorbell_wanted.load() == 0; ++n) {
    must(n < waits_max, "the victim accepts a valid hello");
    // Before that, the victim connects to our listener, to check the owner.
    pollfd one{listener_.get(), POLLIN, 0};
    ::poll(&one, 1, n < 2 ? 1 : 0);
    serve_listener();
    ::sched_yield();
  }
}

void peer::serve_listener() noexcept {
  // An accept in vain would cost as much as all else that an execution does.
  for (pollfd one{listener_.get(), POLLIN, 0}; ::poll(&one, 1, 0) == 1;) {
    unique_fd socket{::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
    if (!socket) return;
    hello words;
    unique_fd file;
    // The other connections only checked the owner of the listener.
    if (receive_hello(socket.get(), words, file)) back.attach(std::move(socket), file.get(), false);
  }
}

void peer::mumble(const void* words, std::size_t bytes, bool with_file) const noexcept {
  const unique_fd file{with_file ? ring_memory::create_file() : -1};
  say(connect().get(), words, bytes, file.get());
}

}  // namespace softverbs::fuzz
