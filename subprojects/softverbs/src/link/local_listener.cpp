#include "link/local_listener.hpp"

#include "link/socket_names.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <map>
#include <string_view>
#include <system_error>

namespace softverbs {

namespace {

name_text plain_name(std::uint16_t slot) noexcept {
  return name_text{"softverbs.%u", unsigned{slot}};
}

/// Calls `match` for each name that may be a listener of `slot`, until it returns true. Any user
/// may have bound any of these names.
template <class Match>
bool any_name(std::uint16_t slot, Match match) noexcept {
  if (match(plain_name(slot).view())) return true;
  const name_text beginning{"softverbs.%u.", unsigned{slot}};
  listening_names all{beginning.view()};
  while (const auto name = all.next())
    if (match(*name)) return true;
  return false;
}

/// Connects to the listener of `slot` whose owner satisfies `is_right`. Null: there is none;
/// `owner` is then a process of another user that has one, if any.
template <class Right>
unique_fd connect_to_owner(std::uint16_t slot, ucred& owner, Right is_right) noexcept {
  unique_fd socket;
  any_name(slot, [&](std::string_view name) {
    socket = connect_to(socket_name{name});
    if (socket && owner_of(socket.get(), owner) && is_right(owner)) return true;
    socket.reset();
    return false;
  });
  return socket;
}

/// \errors std::system_error (EADDRINUSE): a process of this host says that the host has another
/// LID.
void refuse_other_lids(std::uint16_t lid) {
  constexpr std::string_view prefix = "softverbs.lid.";
  listening_names all{prefix};
  while (const auto name = all.next()) {
    const std::string other{name->substr(prefix.size(), name->rfind('.') - prefix.size())};
    if (other == std::to_string(lid)) continue;
    ucred owner{};
    const unique_fd holder = connect_to(socket_name{*name});
    if (!holder || !owner_of(holder.get(), owner)) continue;
    throw std::system_error{EADDRINUSE, std::generic_category(),
                            "softverbs: SOFTVERBS_LID: this host has LID " + other +
                                " in process " + std::to_string(owner.pid) + " and LID " +
                                std::to_string(lid) + " in this one"};
  }
}

}  // namespace

unique_fd open_local_listener(std::uint16_t slot, listener_name kind) noexcept {
  read_any_uid();
  name_text own = plain_name(slot);
  if (kind == listener_name::random) {
    std::uint64_t random = 0;
    if (!make_random(random)) return unique_fd{};
    own = name_text{"softverbs.%u.%016" PRIx64, unsigned{slot}, random};
  }
  unique_fd listener = listen_at(socket_name{own.view()});
  if (!listener) return listener;
  bool is_found = false;  // A random name helps only where other processes find it.
  const bool is_taken = any_name(slot, [&](std::string_view name) {
    if (name == own.view()) {
      is_found = true;
      return false;
    }
    ucred owner{};
    const unique_fd other = connect_to(socket_name{name});
    return other && owner_of(other.get(), owner);
  });
  if (is_found && !is_taken) return listener;
  listener.reset();
  errno = EADDRINUSE;  // Two processes that claim a slot at once see each other, and both give up.
  return listener;
}

unique_fd claim_lid(std::uint16_t lid) {
  refuse_other_lids(lid);
  std::uint64_t random = 0;
  unique_fd claim;
  if (make_random(random))
    claim = listen_at(
        socket_name{name_text{"softverbs.lid.%u.%016" PRIx64, unsigned{lid}, random}.view()});
  if (!claim) throw std::system_error{errno, std::generic_category(), "softverbs: the LID's name"};
  // If two processes start at once, at least one of them sees the other.
  refuse_other_lids(lid);
  return claim;
}

std::string holders_of_slots() {
  struct holder {
    unsigned count = 0;
    pid_t process = 0;
  };
  std::map<uid_t, holder> holders;
  for (std::uint16_t slot = 0; slot < process_slots; ++slot) {
    ucred owner{};
    socklen_t length = sizeof owner;
    const unique_fd listener = connect_to(socket_name{plain_name(slot).view()});
    if (!listener || ::getsockopt(listener.get(), SOL_SOCKET, SO_PEERCRED, &owner, &length) != 0)
      continue;
    holder& one = holders[owner.uid];
    ++one.count;
    one.process = owner.pid;
  }
  std::string text;
  for (const auto& [user, is] : holders)
    text += (text.empty() ? "" : ", ") + std::to_string(is.count) + " by user " +
            std::to_string(user) + " (process " + std::to_string(is.process) +
            (is.count > 1 ? " and others)" : ")");
  return text;
}

bool receive_hello(int socket, hello& words, unique_fd& memory) noexcept {
  return receive_with_descriptor(socket, &words, sizeof words, memory) == 1 && memory &&
         words.is_valid() && ring_memory::is_valid(memory.get());
}

bool is_owner_of(int socket, std::uint16_t slot) noexcept {
  ucred peer{}, owner{};
  if (!owner_of(socket, peer)) {
    warn_of_other_user(peer);
    return false;
  }
  // A process of an invisible PID namespace has pid 0 in both results: then the uid decides.
  const auto is_peer = [&](const ucred& one) { return one.pid == peer.pid; };
  if (connect_to_owner(slot, owner, is_peer)) return true;
  // A process that ended right after its hello has no listener any more. Its last messages are in
  // the ring, and nothing else comes.
  char next = 0;
  const bool has_ended = ::recv(socket, &next, sizeof next, MSG_PEEK | MSG_DONTWAIT) == 0;
  return has_ended && peer.uid == ::geteuid() &&
         !connect_to_owner(slot, owner, [](const ucred&) { return true; });
}

bool connect_local(std::uint16_t slot, std::uint16_t own_slot, unique_fd& socket,
                   unique_fd& memory) noexcept {
  ucred owner{};
  socket = connect_to_owner(process_slot(slot), owner, [](const ucred&) { return true; });
  if (!socket) {
    warn_of_other_user(owner);
    return false;
  }
  memory.reset(ring_memory::create_file());
  hello words;
  words.slot = own_slot;
  words.relays = is_relay(slot) ? 1 : 0;
  return memory && send_with_descriptor(socket.get(), &words, sizeof words, memory.get());
}

}  // namespace softverbs
