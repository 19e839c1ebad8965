#include "multicast/host_names.hpp"

#include "link/listeners.hpp"
#include "multicast/group.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string_view>

namespace softverbs {

namespace {

constexpr std::string_view member_prefix = "softverbs.member.";
constexpr std::string_view watcher_prefix = "softverbs.watcher.";

/// Takes the text up to the next full stop.
std::string_view take_word(std::string_view& text) noexcept {
  const std::size_t end = std::min(text.find('.'), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

template <class Number>
bool to_number(std::string_view word, Number& value, int base = 10) noexcept {
  const char* const end = word.data() + word.size();
  const auto [at, error] = std::from_chars(word.data(), end, value, base);
  return error == std::errc{} && at == end;
}

bool to_group(std::string_view word, ibv_gid& group) noexcept {
  if (word.size() != 2 * sizeof group) return false;
  for (std::size_t n = 0; n < sizeof group; ++n)
    if (!to_number(word.substr(2 * n, 2), group.raw[n], 16)) return false;
  return is_multicast(group);
}

}  // namespace

unique_fd bind_member(std::uint16_t slot, const ibv_gid& group) noexcept {
  std::uint64_t random = 0;
  if (!make_random(random)) return unique_fd{};
  char text[2 * sizeof group + 1];
  for (std::size_t n = 0; n < sizeof group; ++n)
    std::snprintf(text + 2 * n, 3, "%02x", unsigned{group.raw[n]});
  const name_text name{"softverbs.member.%u.%u.%s.%016" PRIx64, unsigned{::geteuid()},
                       unsigned{slot}, text, random};
  return listen_at(socket_name{name.view()});
}

unique_fd bind_watcher() noexcept {
  std::uint64_t random = 0;
  unique_fd watcher{::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!watcher || !make_random(random)) return unique_fd{};
  const name_text text{"softverbs.watcher.%016" PRIx64, random};
  const socket_name name{text.view()};
  const int on = 1;
  if (::setsockopt(watcher.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0 ||
      ::bind(watcher.get(), name.get(), name.length()) != 0)
    return unique_fd{};
  return watcher;
}

void tell_watchers(int watcher, std::span<const std::byte> datagram) noexcept {
  listening_names all{watcher_prefix, name_owner::datagram_socket};
  while (const auto text = all.next()) {
    const socket_name name{*text};
    // A full queue is news enough: its owner looks at all names before it sends.
    (void)::sendto(watcher, datagram.data(), datagram.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                   name.get(), name.length());
  }
}

watcher_news take_news(int watcher, std::span<std::byte> room) noexcept {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))];
  iovec part{room.data(), room.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t bytes = ::recvmsg(watcher, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (bytes < 0) return {};
  watcher_news news{.any = true};
  for (cmsghdr* one = CMSG_FIRSTHDR(&message); one != nullptr; one = CMSG_NXTHDR(&message, one)) {
    if (one->cmsg_level != SOL_SOCKET || one->cmsg_type != SCM_CREDENTIALS) continue;
    ucred sender{};
    std::memcpy(&sender, CMSG_DATA(one), sizeof sender);
    news.trusted = accepts_user(sender.uid);
  }
  if ((message.msg_flags & MSG_TRUNC) == 0) news.bytes = static_cast<std::size_t>(bytes);
  return news;
}

member_names::member_names() noexcept : names_{member_prefix} {}

std::optional<member_names::member> member_names::next() noexcept {
  while (auto name = names_.next()) {
    name->remove_prefix(member_prefix.size());
    uid_t user = 0;
    member found{};
    if (to_number(take_word(*name), user) && accepts_user(user) &&
        to_number(take_word(*name), found.slot) && found.slot < process_slots &&
        to_group(take_word(*name), found.group))
      return found;
  }
  return std::nullopt;
}

}  // namespace softverbs
