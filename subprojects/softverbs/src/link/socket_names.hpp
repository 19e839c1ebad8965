#pragma once

#include "link/unique_fd.hpp"

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string_view>

// Abstract Unix sockets, by which the processes of a host find each other. Any user may bind any
// name, so a name counts only if its owner has an accepted uid.

namespace softverbs {

/// The text of a name.
class name_text {
 public:
  /// Formats as printf does; cuts the text to the length that a name can have.
  [[gnu::format(printf, 2, 3)]] explicit name_text(const char* format, ...) noexcept;
  [[nodiscard]] std::string_view view() const noexcept { return {text_, size_}; }

 private:
  char text_[sizeof sockaddr_un::sun_path];
  std::size_t size_ = 0;
};

/// An abstract name: the first byte is zero, and the kernel drops the name with its last socket.
class socket_name {
 public:
  explicit socket_name(std::string_view text) noexcept;
  [[nodiscard]] const sockaddr* get() const noexcept {
    return reinterpret_cast<const sockaddr*>(&address_);
  }
  [[nodiscard]] socklen_t length() const noexcept { return length_; }

 private:
  sockaddr_un address_{};
  socklen_t length_ = 0;
};

enum class name_owner : std::uint8_t { listener, datagram_socket };

/// The names of this host's listeners that begin with a text, or of its datagram sockets, from the
/// system's list.
class listening_names {
 public:
  explicit listening_names(std::string_view beginning,
                           name_owner owner = name_owner::listener) noexcept;
  /// The next name, without its zero byte; valid until the next call.
  std::optional<std::string_view> next() noexcept;

 private:
  struct closer {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };
  std::string_view beginning_;
  std::string_view mark_;  ///< in the line of such a socket, ahead of its name
  std::unique_ptr<std::FILE, closer> list_;
  char line_[256];
};

/// A packet socket that does not block. Null with errno.
unique_fd local_socket() noexcept;
/// Binds the name and listens. Null with errno; EADDRINUSE: some process has the name.
unique_fd listen_at(const socket_name& name) noexcept;
/// Connects to the name. Null with errno. ECONNREFUSED: nobody has the name; EAGAIN: the listener
/// accepts nothing.
unique_fd connect_to(const socket_name& name) noexcept;
/// Sends one packet with a descriptor. False with errno.
bool send_with_descriptor(int socket, const void* bytes, std::size_t count, int fd) noexcept;
/// Receives one packet of exactly `count` bytes, with a descriptor or without (`passed` is null
/// then). Returns 1; 0 if the packet is another one; -1 with errno.
int receive_with_descriptor(int socket, void* bytes, std::size_t count, unique_fd& passed) noexcept;
/// 64 random bits, of which nobody knows beforehand. False: the system has none yet.
bool make_random(std::uint64_t& bits) noexcept;

/// Reads SOFTVERBS_ANY_UID; another thread may change the environment later.
void read_any_uid() noexcept;
/// True for our own uid, and for any with SOFTVERBS_ANY_UID=1.
[[nodiscard]] bool accepts_user(uid_t user) noexcept;
/// Reads the credentials of the peer of a local socket. False: its uid is not accepted.
bool owner_of(int socket, ucred& owner) noexcept;
/// Tells on stderr, once, why a process of another user is not talked to.
void warn_of_other_user(const ucred& owner) noexcept;

}  // namespace softverbs
