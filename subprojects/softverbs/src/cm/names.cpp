#include "cm/names.hpp"

#include "link/ip_address.hpp"
#include "link/socket_names.hpp"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cinttypes>
#include <cstring>
#include <optional>
#include <string_view>

namespace softverbs::cm {

namespace {

constexpr unsigned v6_only_flag = 1;
constexpr unsigned reuse_flag = 2;
constexpr std::size_t address_digits = 2 * sizeof(in6_addr);
constexpr std::size_t random_digits = 16;

constexpr in6_addr any_v6{};
constexpr in6_addr any_v4{{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0}}};

/// The text with which all names of one port begin.
name_text beginning_of(std::uint16_t space, std::uint16_t port) noexcept {
  return name_text{"softverbs.cm.%u.%u.", unsigned{space}, unsigned{port}};
}

/// `random`: 0 for the plain name.
name_text text_of(const bound_name& name, std::uint64_t random = 0) noexcept {
  char address[address_digits + 1]{};
  for (std::size_t n = 0; n < address_digits; ++n) {
    const unsigned byte = name.at.address.s6_addr[n / 2];
    address[n] = "0123456789abcdef"[n % 2 == 0 ? byte / 16 : byte % 16];
  }
  const unsigned flags = (name.v6_only ? v6_only_flag : 0) | (name.reuse ? reuse_flag : 0);
  const name_text beginning = beginning_of(name.space, name.at.port);
  const std::string_view begins = beginning.view();
  if (random == 0)
    return name_text{"%.*s%s.%u", static_cast<int>(begins.size()), begins.data(), address, flags};
  return name_text{"%.*s%s.%u.%016" PRIx64,
                   static_cast<int>(begins.size()),
                   begins.data(),
                   address,
                   flags,
                   random};
}

bool take_hex(std::string_view& text, std::size_t digits, std::uint64_t& value) noexcept {
  if (text.size() < digits) return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + digits, value, 16);
  text.remove_prefix(digits);
  return error == std::errc{} && end == text.data();
}

/// Reads what text_of() wrote behind the beginning. Other users may have written anything.
std::optional<bound_name> parsed(std::uint16_t space, std::uint16_t port,
                                 std::string_view rest) noexcept {
  bound_name name;
  name.space = space;
  name.at.port = port;
  std::uint64_t value = 0;
  for (std::uint8_t& byte : name.at.address.s6_addr) {
    if (!take_hex(rest, 2, value)) return std::nullopt;
    byte = static_cast<std::uint8_t>(value);
  }
  if (!rest.starts_with('.')) return std::nullopt;
  rest.remove_prefix(1);
  if (!take_hex(rest, 1, value) || value > (v6_only_flag | reuse_flag)) return std::nullopt;
  name.v6_only = (value & v6_only_flag) != 0;
  name.reuse = (value & reuse_flag) != 0;
  if (rest.empty()) return name;
  if (!rest.starts_with('.')) return std::nullopt;
  rest.remove_prefix(1);
  if (!take_hex(rest, random_digits, value) || !rest.empty()) return std::nullopt;
  return name;
}

/// The text under which a claim was made.
std::string_view text_of_socket(int socket, sockaddr_un& name) noexcept {
  socklen_t length = sizeof name;
  constexpr std::size_t begin = offsetof(sockaddr_un, sun_path) + 1;
  if (socket < 0 || ::getsockname(socket, reinterpret_cast<sockaddr*>(&name), &length) != 0 ||
      length <= begin)
    return {};
  return {name.sun_path + 1, length - begin};
}

/// True if a process of an accepted user has the name, or could have it. EAGAIN hides the owner,
/// whose backlog is full. Ours has room for 4096, so it is another user, who could block any name.
bool is_held(std::string_view text) noexcept {
  ucred owner{};
  const unique_fd other = connect_to(socket_name{text});
  if (!other) return errno != ECONNREFUSED && errno != EAGAIN;
  return owner_of(other.get(), owner);
}

/// Looks for names that exclude ours. 0: there is none, and others can see ours.
int conflict_with_others(const bound_name& name, std::string_view own, int besides) noexcept {
  sockaddr_un replaced{};
  const std::string_view other_own = text_of_socket(besides, replaced);
  const name_text beginning = beginning_of(name.space, name.at.port);
  listening_names all{beginning.view()};
  bool is_found = false;
  int conflict = 0;
  while (const auto text = all.next()) {
    if (*text == own) {
      is_found = true;
    } else if (*text != other_own && conflict == 0) {
      const auto other = parsed(name.space, name.at.port, text->substr(beginning.view().size()));
      if (!other) continue;
      const int error = conflict_of(name, *other);
      if (error != 0 && is_held(*text)) conflict = error;
    }
  }
  return conflict != 0 || is_found ? conflict : EADDRNOTAVAIL;
}

}  // namespace

bool is_wildcard(const in6_addr& address) noexcept {
  return same(address, any_v6) || same(address, any_v4);
}

bool covers(const bound_name& name, std::uint16_t space, const endpoint& wanted) noexcept {
  if (name.space != space || name.at.port != wanted.port) return false;
  if (same(name.at.address, wanted.address)) return true;
  if (same(name.at.address, any_v4)) return is_mapped(wanted.address);
  return same(name.at.address, any_v6) && !(name.v6_only && is_mapped(wanted.address));
}

int conflict_of(const bound_name& a, const bound_name& b) noexcept {
  if (a.space != b.space || a.at.port != b.at.port || (a.reuse && b.reuse)) return 0;
  const bool one_family = is_mapped(a.at.address) == is_mapped(b.at.address);
  const bool each_has_one =
      (is_mapped(a.at.address) || a.v6_only) && (is_mapped(b.at.address) || b.v6_only);
  if (each_has_one && !one_family) return 0;
  if (is_wildcard(a.at.address) || is_wildcard(b.at.address)) return EADDRNOTAVAIL;
  return same(a.at.address, b.at.address) ? EADDRINUSE : 0;
}

unique_fd claim(const bound_name& name, int besides, int& error) noexcept {
  name_text own = text_of(name);
  unique_fd listener;
  // Names that processes share differ by a random number. A name that others squat on gets such a
  // number, too.
  error = 0;
  if (!name.reuse) {
    listener = listen_at(socket_name{own.view()});
    if (!listener) error = errno;
    if (error == EADDRINUSE && is_held(own.view())) {
      if (is_wildcard(name.at.address)) error = EADDRNOTAVAIL;
      return {};
    }
  }
  if (!listener && (name.reuse || error == EADDRINUSE)) {
    std::uint64_t random = 0;
    if (!make_random(random)) {
      error = EAGAIN;
      return {};
    }
    own = text_of(name, random | 1);
    listener = listen_at(socket_name{own.view()});
    error = listener ? 0 : errno;
  }
  if (listener) error = conflict_with_others(name, own.view(), besides);
  if (error != 0) listener.reset();
  return listener;
}

unique_fd connect_to_holder(std::uint16_t space, const endpoint& wanted, int& error) noexcept {
  ucred owner{};
  bool is_of_other_user = false;
  unique_fd socket;
  error = ECONNREFUSED;
  const auto connects = [&](std::string_view text) {
    socket = connect_to(socket_name{text});
    if (socket && owner_of(socket.get(), owner)) {
      error = 0;
    } else if (socket) {
      is_of_other_user = true;
      socket.reset();
    } else if (errno != ECONNREFUSED) {
      error = errno;
    }
    return error == 0;
  };
  const bool is_v4 = is_mapped(wanted.address);
  for (const in6_addr& address : {wanted.address, is_v4 ? any_v4 : any_v6, any_v6}) {
    for (const bool v6_only : {false, true}) {
      if (v6_only && is_v4) continue;
      bound_name name{space, wanted, v6_only, false};
      name.at.address = address;
      if (connects(text_of(name).view())) return socket;
    }
  }
  const name_text beginning = beginning_of(space, wanted.port);
  listening_names all{beginning.view()};
  while (const auto text = all.next()) {
    const auto name = parsed(space, wanted.port, text->substr(beginning.view().size()));
    if (name && !name->reuse && covers(*name, space, wanted) && connects(*text)) return socket;
  }
  if (is_of_other_user) warn_of_other_user(owner);
  return {};
}

}  // namespace softverbs::cm
